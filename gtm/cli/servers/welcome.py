"""What `gtm serve` prints once everything answers: where it is, the first token, and commands to try."""

from __future__ import annotations

import shlex
import sys

from rich.console import Console
from rich.markup import escape

from gtm.cli.common import options
from gtm.cli.common.program import program
from gtm.runtime.process.handed import received
from gtm.runtime.serve.supervisor import Running


def main() -> None:
    """Print the page of what this process was handed."""
    sys.argv[0] = sys.argv[1]
    welcome(received(Running))


def welcome(running: Running) -> None:
    """Print the page."""
    console = Console(highlight=False, soft_wrap=True)
    console.print()
    console.print(f"[bold green]gtm is ready[/]   (data in {escape(str(running.data_dir))}; Ctrl-C stops it)")
    console.print("  dashboard     ", end="")
    console.print(running.dashboard, style="bold", end="")
    console.print("   (signs you in, once; later: gtm dashboard)")
    console.print(f"  control API   {running.control}   documentation at {running.control}/docs")
    console.print(f"  edge HTTP     {running.edge}")
    console.print(f"  edge DNS      {running.dns}   (UDP and TCP)")
    console.print()
    if running.admin_token is not None:
        console.print("[bold]Your first admin token, shown only this once:[/]")
        console.print(f"  export GTM_TOKEN={running.admin_token}", style="bold yellow")
    else:
        console.print("The admin token was printed at the first start. Lost it? Make another:")
        # The URL of another Postgres holds its password: it is not for a terminal.
        where = f" --data-dir {_quoted(running)}" if running.embedded else "   # needs GTM_DATABASE_URL"
        console.print(f"  {program()} token create rescue --role admin --direct{escape(where)}")
    if running.control != options.CONTROL:
        console.print(f"  export GTM_CONTROL_URL={running.control}")
    if running.edge != options.EDGE:
        console.print(f"  export GTM_EDGE_URL={running.edge}")
    console.print()
    if running.regions:
        _demo(console, running)
    elif running.admin_token is not None:
        _next(console)
    console.print()


def _next(console: Console) -> None:
    """What to do with a system that has no policy yet."""
    gtm = program()
    console.print("There is no policy yet, so every name and service is unknown. Next, in a second terminal:")
    for command, what in (
        (f"{gtm} init my-policy", "asks where your regions are, and writes a folder of YAML"),
        (f"{gtm} check my-policy", "every problem with its file and line, and the decisions expected"),
        (f"{gtm} apply my-policy", "puts it in force (with the token above)"),
    ):
        console.print(f"  {escape(command)}   [dim]# {what}[/]")
    console.print(f"Or look at a worked one first: Ctrl-C, then {escape(gtm)} serve --demo --data-dir demo")


def _quoted(running: Running) -> str:
    return shlex.quote(str(running.data_dir))


def _demo(console: Console, running: Running) -> None:
    console.print("[bold]The demo world[/]: " + ", ".join(running.regions))
    for title, commands in _examples(running):
        console.print(f"\n  [dim]# {title}[/]")
        for command in commands:
            console.print(f"  {escape(command)}")


def _examples(running: Running) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Commands to try, under what each few show."""
    host, _, port = running.dns.rpartition(":")
    data = "" if running.data_dir == options.DATA_DIR.absolute() else f" --data-dir {_quoted(running)}"
    gtm = program()
    dig = f"dig @{host} -p {port} +short"
    route = f"{running.edge}/v1/route"
    return (
        (
            "Which region serves a client in London? In Tokyo? Why?",
            (
                f"curl '{route}?service=chat&client_ip=81.2.69.142'",
                f"{gtm} explain chat --client 133.11.0.1",
            ),
        ),
        (
            "The same over DNS, by the client's network (EDNS client subnet)",
            (f"{dig} chat.demo.test +subnet=81.2.69.0/24", f"{dig} web.demo.test +subnet=133.11.0.0/24"),
        ),
        (
            "And by redirect, with path and query kept",
            (
                f"curl -i '{running.edge}/r/web/v1/models?limit=1'",
                f"curl -i -H 'Host: web.demo.test' {running.edge}/hello",
            ),
        ),
        (
            "Kill Frankfurt: its clients move to Dublin. Kill Dublin too: GDPR clients are refused (451), others go on",
            (
                f"{gtm} demo fail eu-central{data}; sleep 3  # until probes notice",
                f"curl '{route}?service=chat&client_ip=91.198.174.192'",
                f"{gtm} demo fail eu-west{data}; sleep 3",
                f"curl -i '{route}?service=chat&client_ip=91.198.174.192'",
                f"curl '{route}?service=web&client_ip=91.198.174.192'",
                f"{gtm} demo restore eu-central{data}; {gtm} demo restore eu-west{data}; sleep 3",
            ),
        ),
        (
            "Spillover: send clients of 68 countries, take Frankfurt's slots away, and watch (each in a terminal of its own)",
            (
                f"{gtm} demo traffic --rps 150{data}",
                f"{gtm} demo capacity eu-central 10{data}  # 40 brings them back",
                f"{gtm} top   # needs the token",
            ),
        ),
        (
            "Drain a region, look, and bring it back (these need the token)",
            (f"{gtm} regions drain us-east", f"{gtm} regions list", f"{gtm} regions activate us-east"),
        ),
        (
            "Health records of one tenant stay in Germany",
            (
                f"curl '{route}?service=records&client_ip=8.8.8.8&tenant=clinic&data_class=health'",
                f"curl '{route}?service=records&client_ip=8.8.8.8&tenant=acme&data_class=public'",
            ),
        ),
    )


if __name__ == "__main__":
    main()
