"""The leaderboard: a file an arm and setting, and the page that is made from them.

- ``adding.py``: A new method on the leaderboard: trained in a stored setting, and shown beside the arms that are there
- ``commands.py``: The commands of the leaderboard: publish a study, restore one, and add an arm to a setting
- ``files.py``: The files of the leaderboard: one for each setting, and one for each arm in it
- ``page.py``: The leaderboard as a page that opens without a network, with columns to sort by
- ``restoring.py``: The folder of a study, made again from its setting on the leaderboard: what is missing there goes on
  from it
- ``rows.py``: The rows of the leaderboard: what is shown of an arm, and of a primary comparison
"""
