"""News of rollouts reach the coroutine that follows them, whatever comes between two of its looks."""

import asyncio

import pytest

from ngrpo.exploration.token import TokenSampling
from ngrpo.serving.following import Following
from ngrpo.serving.generation import Choice, Generation
from ngrpo.types.rollouts import Request, Sampling


def followed() -> tuple[Following, Generation]:
    following = Following(asyncio.get_running_loop())
    work = Generation([Request((5,), 1)], Sampling(1.0, 4, ()), Choice("token", TokenSampling()), watcher=following)
    work.done.add_done_callback(lambda _: following.wake())
    return following, work


@pytest.mark.parametrize("ending", ["fails", "is withdrawn"])
@pytest.mark.parametrize("looks", [0, 1, 2])
def test_an_end_that_comes_while_tokens_wait_is_told_after_them(ending: str, looks: int) -> None:
    """What ends wakes nobody by itself while other news waits to be taken."""

    async def ends() -> None:
        following, work = followed()
        following.tokens(0, [1, 2])
        for _ in range(looks):
            await asyncio.sleep(0)  # the tokens' waking goes through the loop
        if ending == "fails":
            work.done.set_exception(ValueError("a broken forward"))
        else:
            work.done.cancel()
        (news,) = await following.next(work)
        assert (news.place, news.ids, news.rollout) == (0, [1, 2], None)
        with pytest.raises(ValueError if ending == "fails" else InterruptedError):
            await asyncio.wait_for(following.next(work), 10)

    asyncio.run(ends())


def test_tokens_are_put_together_until_they_are_taken() -> None:
    async def takes() -> None:
        following, work = followed()
        waiting = asyncio.ensure_future(following.next(work))
        await asyncio.sleep(0)
        following.tokens(0, [1])
        following.tokens(0, [2, 3])
        assert [news.ids for news in await asyncio.wait_for(waiting, 10)] == [[1, 2, 3]]
        following.tokens(0, [4])
        assert [news.ids for news in await asyncio.wait_for(following.next(work), 10)] == [[4]]

    asyncio.run(takes())
