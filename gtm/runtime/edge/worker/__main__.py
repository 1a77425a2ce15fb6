from __future__ import annotations

from gtm.runtime.edge.line import WorkerKind, WorkerSettings
from gtm.runtime.edge.orphans import listen_early
from gtm.runtime.edge.worker.servers import run_dns, run_http
from gtm.runtime.edge.worker.worker import Worker
from gtm.runtime.process import pauses, signals
from gtm.runtime.process.connections import raise_descriptor_limit
from gtm.runtime.process.handed import received
from gtm.runtime.process.logs import configure


def main() -> None:
    """Run the worker that this process was handed."""
    settings = received(WorkerSettings)
    configure(settings.edge.log_level, str(settings.id))
    signals.leave_to_parent()
    if settings.door is not None:
        listen_early(settings.door)
    pauses.shorten()
    raise_descriptor_limit()
    worker = Worker(settings)
    (run_dns if settings.id.kind is WorkerKind.DNS else run_http)(worker)


if __name__ == "__main__":
    main()
