"""Runs the demo: a real server and worker, the fleet and the people."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from threading import Event, Thread, Timer

from tidegate import config, main
from tidegate.api.metrics import Metrics
from tidegate.api.routes import ROUTES
from tidegate.commands.application import make_application
from tidegate.commands.startup import open_installation
from tidegate.control import webhooks, worker
from tidegate.control.outbox.targets.webhook import WebhookTarget
from tidegate.dashboard.routes import PAGES
from tidegate.demo import sign_in, story, webhook_receiver
from tidegate.demo.fleet import DemoFleet
from tidegate.demo.people import VISITOR, DemoPeople

JOIN_SECONDS = 10.0
WEBHOOK_SECONDS = 5.0
PACE = worker.LoopPace(orders=0.25, timers=0.5, outbox=0.5, manifests=1.0, reconcile=15.0)


def run_demo(
    settings: config.Settings, *, speed: float, minutes: float | None, say: story.Say
) -> None:
    """Run the demo until a signal, or until its minutes have passed.

    Raises:
        StoreRefused, Exception: what ended the worker or a thread of the demo.
    """
    with ExitStack() as stack:
        installation = open_installation(settings)
        stack.callback(installation.close)
        link = sign_in.SignInLink(VISITOR, password := secrets.token_urlsafe(12))
        application = make_application(installation, routes=(*ROUTES, *PAGES, link.route))
        stack.callback(application.close)
        people = DemoPeople(installation, password)
        server = main.make_server(application, settings)
        fleet = DemoFleet(installation, speed)
        receiver = webhook_receiver.Receiver()
        stack.callback(receiver.go_down)
        demo_story = story.DemoStory(installation, people, fleet, receiver, speed=speed, say=say)
        demo_story.lay_out()
        threads = DemoThreads(server.end)
        stack.enter_context(
            worker.Worker(
                installation,
                targets={story.NOTIFY: _target(receiver)},
                pace=PACE,
                registry=application.parts[Metrics].registry,
                wake=fleet.wake,
                failed=server.end,
            )
        )
        stack.callback(threads.join)
        stack.callback(demo_story.end)
        stack.callback(threads.stop.set)
        for part in (lambda: fleet.run(threads.stop), demo_story.web, demo_story.api):
            threads.start(part)
        if minutes is not None:
            timer = Timer(minutes * 60, server.end)
            timer.daemon = True
            stack.callback(timer.cancel)
            timer.start()
        url = f"http://{settings.host}:{settings.port}"
        say(f"dashboard:  {url}/")
        say(f"sign in:    {url}{link.path}   (works once)")
        say(f"later:      user {VISITOR}, password {people.password}")
        server.run()
    threads.check()
    say(f"the demo is over ({server.ended_by or 'it had its minutes'})")


def _target(receiver: webhook_receiver.Receiver) -> WebhookTarget:
    return WebhookTarget(
        receiver.url,
        (webhooks.to_secret(secrets.token_bytes(32)),),
        allowed=(receiver.place,),
        timeout_seconds=WEBHOOK_SECONDS,
    )


class DemoThreads:
    """The threads of the demo. If one fails, the demo ends."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._threads: list[Thread] = []
        self._failure: Exception | None = None
        self.stop = Event()

    def start(self, part: Callable[[], None]) -> None:
        thread = Thread(target=self._run, args=(part,), name="demo")
        self._threads.append(thread)
        thread.start()

    def _run(self, part: Callable[[], None]) -> None:
        try:
            part()
        except story.DemoOver:
            return
        except Exception as error:  # noqa: BLE001 — raised by ``check``
            self._failure = error
            self._end()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(JOIN_SECONDS)

    def check(self) -> None:
        """Raises: Exception: the error of a thread that failed."""
        if self._failure is not None:
            raise self._failure
