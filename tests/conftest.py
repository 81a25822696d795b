"""What all tests share: hypothesis takes the same examples every time, however slow the machine."""

from hypothesis import settings

settings.register_profile("lastlayer", deadline=None, derandomize=True)
settings.load_profile("lastlayer")
