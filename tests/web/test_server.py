"""The steps towards the end, one signal each."""

import signal

from service.web.application import Application
from service.web.server import Server


async def test_each_signal_is_one_step() -> None:
    app = Application([], openapi_config=None, logging_config=None)
    server = Server(app, delay_seconds=3600, grace_seconds=30)

    async def state() -> tuple[bool, bool, bool]:
        return app.is_stopping, await server.on_tick(1), server.force_exit

    states = [await state()]
    for told in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        server.handle_exit(told, None)
        states.append(await state())
    assert states == [
        (False, False, False),
        (True, False, False),  # not ready any more, but serving
        (True, True, False),  # listening no more
        (True, True, True),  # waiting no more
    ]
    assert not server._captured_signals  # none is raised again, so the process ends with 0


async def test_without_a_delay_the_first_signal_ends_listening() -> None:
    server = Server(
        Application([], openapi_config=None, logging_config=None),
        delay_seconds=0,
        grace_seconds=30,
    )
    server.handle_exit(signal.SIGINT, None)
    assert await server.on_tick(1)
