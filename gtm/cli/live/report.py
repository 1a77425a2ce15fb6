"""`gtm report`: the load of a region's servers, read from their own metrics and sent to control."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from gtm.cli.common import output
from gtm.cli.common.commands import Command, asks
from gtm.cli.common.exits import CommandError, Exit

if TYPE_CHECKING:
    import httpx

    from gtm.adapters.watch import ScrapeTarget, Watch

_TIMEOUT = 5.0
_SCRAPE = 2.0
"""Seconds that a server's metrics may take."""

Urls = list[str]
_Send = Callable[[list[dict[str, object]]], None]


def _urls(option: str, where: str) -> Any:
    return typer.Option(f"--{option}", metavar="URL", help=f"{where}; several: given again.")


app = typer.Typer()


@asks(app, json=None)
def report(
    ask: Command,
    *,
    region: Annotated[str, typer.Option("--region", help="The region that the servers are in.")],
    service: Annotated[
        str | None,
        typer.Option("--service", help="The service they serve; without it, the region as a whole."),
    ] = None,
    vllm: Annotated[Urls | None, _urls("vllm", "Metrics of a vLLM server")] = None,
    sglang: Annotated[
        Urls | None, _urls("sglang", "Metrics of an SGLang server (started with --enable-metrics)")
    ] = None,
    tgi: Annotated[Urls | None, _urls("tgi", "Metrics of a Text Generation Inference server")] = None,
    triton: Annotated[Urls | None, _urls("triton", "Metrics of a Triton server (port 8002)")] = None,
    haproxy: Annotated[Urls | None, _urls("haproxy", "Metrics of HAProxy's built-in exporter")] = None,
    nginx: Annotated[Urls | None, _urls("nginx", "NGINX's stub_status page")] = None,
    prometheus: Annotated[
        Urls | None, _urls("prometheus", "Any other metrics in Prometheus' format, with --series")
    ] = None,
    series: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SIGNAL=SERIES",
            help='Which series of --prometheus is what: outstanding=busy{pool="a"}; several: given again.',
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="A label that series must carry, such as model_name=llama or proxy=models; several: given again.",
        ),
    ] = None,
    limit: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Requests that each server serves at once (vLLM: --max-num-seqs), where its metrics don't say.",
        ),
    ] = None,
    every: Annotated[float, typer.Option(min=0.5, max=10, help="Seconds between two reports.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look twice, report once, print it, and end.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print reports as JSON; send none.")] = False,
) -> None:
    """Read the metrics of a region's servers, and report its load to control until Ctrl-C.

    What a server does not say is unknown, never idle; one that does not answer is not reported of. Needs a token of role
    `reporter` (docs/operations.md#load-reports).
    """
    from gtm.adapters.servers import ServerType
    from gtm.adapters.watch import Fixed, Watch

    given = {
        ServerType.VLLM: vllm,
        ServerType.SGLANG: sglang,
        ServerType.TGI: tgi,
        ServerType.TRITON: triton,
        ServerType.HAPROXY: haproxy,
        ServerType.NGINX: nginx,
        ServerType.PROMETHEUS: prometheus,
    }
    targets = [_target(server_type, url) for server_type, urls in given.items() for url in urls or ()]
    _check_targets(targets, bool(prometheus), series or [])
    fixed = Fixed(region, service, limit, _labels(label or []), _series(series or []))
    send = _print if dry_run else _to_control(ask)
    with _client(targets) as client:
        watch = Watch(targets, fixed, client, time.monotonic)
        try:
            _follow(watch, send, every, once=once, quiet=dry_run)
        except KeyboardInterrupt:
            return
        finally:
            watch.close()


def _client(targets: Sequence[ScrapeTarget]) -> httpx.Client:
    """What asks each server through the proxy that leads there, if one does.

    Raises:
        CommandError: a proxy of the environment is none.
    """
    import httpx

    from gtm.client.proxies import proxy_for
    from gtm.transport import tls_context

    tls = tls_context(None)
    try:
        mounts = {
            f"{urlsplit(target.url).scheme}://{target.source}": httpx.HTTPTransport(proxy=proxy, verify=tls)
            for target in targets
            if (proxy := proxy_for(target.url))
        }
    except ValueError as error:
        raise CommandError(f"the proxy set in the environment cannot be used: {error}") from error
    return httpx.Client(timeout=_SCRAPE, follow_redirects=False, trust_env=False, verify=tls, mounts=mounts)


def _follow(watch: Watch, send: _Send, every: float, *, once: bool, quiet: bool) -> None:
    """Look and report. Servers and control may go and come back; only at the first report must control be there.

    Raises:
        CommandError: the first report cannot be sent, or (with `once`) there is nothing to report.
    """
    if once:  # rates need two looks
        _tell(watch.look()[1])
        time.sleep(min(every, 1.0))
    sender = _Sender(send, quiet=quiet)
    while True:
        began = time.monotonic()
        reports, news = watch.look()
        _tell(news)
        if reports:
            sender.send(reports)
        if once:
            if not reports:
                raise CommandError("none of the servers said anything to report", Exit.UNREACHABLE)
            if not quiet:
                _print(reports)
            return
        time.sleep(max(0.0, every - (time.monotonic() - began)))


def _tell(news: list[str]) -> None:
    for line in news:
        typer.echo(line, err=True)


class _Sender:
    """Sends reports, and says what changed: that they arrive, or why not."""

    def __init__(self, send: _Send, *, quiet: bool) -> None:
        self._send = send
        self._quiet = quiet
        self._sent = False
        self._trouble = ""

    def send(self, reports: list[dict[str, object]]) -> None:
        try:
            self._send(reports)
        except CommandError as error:
            if not self._sent:
                raise
            if str(error) != self._trouble:
                typer.echo(f"not reported: {error}", err=True)
            self._trouble = str(error)
            return
        if not self._quiet and (self._trouble or not self._sent):
            names = ", ".join(str(one["source"]) for one in reports)
            typer.echo(f"reporting {names}: {_words(reports)}")
        self._sent, self._trouble = True, ""


def _words(reports: list[dict[str, object]]) -> str:
    """What is reported at first, for a person to see that it is right."""
    names = sorted({name for one in reports for name in one} - {"region", "service", "source", "models"})
    totals = {
        name: sum(value for one in reports if isinstance(value := one.get(name), int | float))
        for name in names
    }
    return ", ".join(
        f"{name} {total:g}" for name, total in totals.items() if not name.endswith(("_ms", "usage", "bytes"))
    )


def _to_control(ask: Command) -> _Send:
    from gtm.cli.common import client

    api = client.control(ask.control_url, ask.token, timeout=_TIMEOUT)
    return lambda reports: api.report_load({"reports": reports})


def _print(reports: list[dict[str, object]]) -> None:
    for one in reports:
        output.print_json_line(one)


def _target(server_type: Any, url: str) -> ScrapeTarget:
    from gtm.adapters.servers import ServerType
    from gtm.adapters.watch import ScrapeTarget

    text = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not text.isprintable() or " " in text:
        raise CommandError(
            f"--{server_type.value}: `{url}` is not a URL such as http://127.0.0.1:8000/metrics"
        )
    if not parts.path.strip("/") and server_type is not ServerType.NGINX:
        text = text.rstrip("/") + "/metrics"
    return ScrapeTarget(server_type, text)


def _check_targets(targets: list[ScrapeTarget], named: bool, series: list[str]) -> None:
    if not targets:
        raise CommandError("say which servers: --vllm URL, --haproxy URL, … (`gtm report --help`)")
    sources = [target.source for target in targets]
    twice = sorted({source for source in sources if sources.count(source) > 1})
    if twice:
        raise CommandError(f"`{twice[0]}` is given twice: its requests would count twice")
    if named != bool(series):
        raise CommandError(
            "--prometheus needs --series SIGNAL=SERIES"
            if named
            else "--series means nothing without --prometheus"
        )


def _labels(given: list[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise CommandError(f"--label: `{text}` is not NAME=VALUE")
        found[name] = value
    return found


def _series(given: list[str]) -> dict[str, Any]:
    from gtm.adapters.servers import GAUGES, MEANS, RATES, read_series

    known = (*GAUGES, *RATES, *MEANS)
    found = {}
    for text in given:
        signal, equals, name = text.partition("=")
        if not equals or signal not in known:
            raise CommandError(f"--series: `{text}` is not SIGNAL=SERIES; signals are {', '.join(known)}")
        try:
            found[signal] = read_series(name)
        except ValueError as error:
            raise CommandError(f"--series: {error}") from error
    return found
