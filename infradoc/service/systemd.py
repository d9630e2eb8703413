"""The service manager: telling it how the watch is (sd_notify), and the unit that starts it."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from pathlib import Path

UNIT = """\
[Unit]
Description=infradoc watch: doctor for LLM serving
Documentation=man:systemd.service(5)
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
ExecStart={command} watch{config}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=5
TimeoutStopSec=30
WatchdogSec=60
# Secrets that infradoc.toml names by *_env go here, one NAME=value a line, mode 0600.
EnvironmentFile=-/etc/infradoc/environment
# Its incidents and silences: sudo INFRADOC_STATE_DIR=/var/lib/infradoc {command} alerts list
Environment=INFRADOC_STATE_DIR=/var/lib/infradoc
StateDirectory=infradoc
StateDirectoryMode=0700
# A user of its own, which must be able to read this program, infradoc.toml and the logs named there: none of them
# below /root, /tmp or a closed home.
DynamicUser=yes
SupplementaryGroups=systemd-journal
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
"""


def unit_text(config: Path | None) -> str:
    """A unit for this installation; `config` is the configuration file it shall read."""
    command = Path(sys.argv[0]).resolve()
    name = str(command) if command.name == "infradoc" else "/usr/local/bin/infradoc"
    where = f" --config {shlex.quote(str(config.resolve()))}" if config is not None else ""
    return UNIT.format(command=shlex.quote(name), config=where)


def notify(message: str) -> None:
    """Tell the service manager, where there is one (NOTIFY_SOCKET is set): "READY=1", "STOPPING=1", "WATCHDOG=1"."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.settimeout(1.0)
        try:
            link.sendto(message.encode(), "\0" + address[1:] if address[0] == "@" else address)
        except OSError as error:
            print(f"infradoc watch: the service manager cannot be told {message}: {error}", file=sys.stderr)


def watchdog_seconds() -> float | None:
    """How often the service manager wants to hear from the watch: half of the time it set; None when it did not."""
    try:
        return int(os.environ.get("WATCHDOG_USEC", "")) / 2e6
    except ValueError:
        return None
