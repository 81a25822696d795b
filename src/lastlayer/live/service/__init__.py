"""The service: live heads over HTTP, for ``lastlayer serve``. It needs the extra ``serve``."""
