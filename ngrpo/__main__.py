"""The console command, as ``python -m ngrpo``."""

from ngrpo.entrypoints.command import main

if __name__ == "__main__":
    main()
