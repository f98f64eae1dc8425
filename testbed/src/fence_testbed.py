#!/usr/bin/python3
"""The power controller of a test cluster, called as the fence agents of Debian are: -o status|off|on|reboot -n NODE."""

import argparse
import os
import socket
import sys

CONTROL = os.path.join(os.path.dirname(os.path.realpath(sys.argv[0])), "../run/control")
LIMIT_S = 20
OFF = 2


def ask(words):
    """What the cluster answers; an exception if it does not, or refuses."""
    with socket.socket(socket.AF_UNIX) as control:
        control.settimeout(LIMIT_S)
        control.connect(CONTROL)
        control.sendall((words + "\n").encode())
        answer = control.makefile().readline().strip()
    if not answer.startswith("ok"):
        raise OSError(answer or "no answer")
    return answer[3:]


class Parser(argparse.ArgumentParser):
    """One that does not end with 2 for wrong words, which would be "off"."""

    def error(self, message):
        raise OSError(message)


def main():
    parser = Parser()
    parser.add_argument("-o", "--action", default="reboot", choices=["status", "off", "on", "reboot"])
    parser.add_argument("-n", "--plug", required=True)
    chosen = parser.parse_args()
    if chosen.action == "status":
        status = ask(f"power status {chosen.plug}")
        print(f"Status: {status.upper()}")
        return OFF if status == "off" else 0
    for step in ["off", "on"] if chosen.action == "reboot" else [chosen.action]:
        if ask(f"power status {chosen.plug}") != step:
            ask(f"power {step} {chosen.plug}")
    print(f"Success: {'Rebooted' if chosen.action == 'reboot' else f'Powered {chosen.action.upper()}'}")
    return 0


try:
    sys.exit(main())
except OSError as error:
    print(f"Failed: {error}", file=sys.stderr)
    sys.exit(1)
