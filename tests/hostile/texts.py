"""Texts of providers, hosts and boxes that no honest one writes: addresses, and why a host failed."""

from collections.abc import Mapping

from tests.hostile.lie import STEERING

PLACES: Mapping[str, str] = {
    # Where node 0 says, through its provider, that the others meet it: a line of their environment.
    "nothing": "",
    "no port": "10.0.0.1",
    "no host": ":29400",
    "port 0": "10.0.0.1:0",
    "no room for the next two ports": "10.0.0.1:65535",
    "no such port": "10.0.0.1:99999",
    "three parts": "a:1:2",
    "a command": "$(reboot):29400",
    "two words": "a b:29400",
    "another variable": "a:29400\nLD_PRELOAD=/evil.so",
    "an option": "-o:29400",
    "a name without an end": "x" * 300 + ":29400",
    "digits of another script as a name": "\u0661:29400",
    "digits of another script as a port": "a:\u0662\u0663\u0664",
    "steering": STEERING,
}
ADDRESSES: Mapping[str, str] = {
    # Where a machine is reached by SSH: a word of a command line, and of the user's own ~/.ssh/config.
    "nothing": "",
    "an option": "-oProxyCommand=touch owned",
    "another option": "203.0.113.4\n    ProxyCommand touch owned",
    "another host": "203.0.113.4\rHost *",
    "another word": "203.0.113.4 evil.example",
    "a comment": "203.0.113.4#",
    "a quote": '203.0.113.4"',
    "a token of the client": "%h.evil.example",
    "a variable": "${HOME}",
    "a command": "$(touch owned)",
    "a user": "root@evil.example",
    "digits of another script": "\u0661.example",
    "a name without an end": "x" * (1 << 16),
    "a line break at its end": "203.0.113.4\n",
    "steering": STEERING,
}
HOST_LOGS: Mapping[str, str] = {
    # What the host of a machine that does not start wrote last.
    "nothing": "",
    "blank lines": " \n\r\n\t\n" * 1000,
    "one line without an end": "x" * (1 << 20),
    "lines without an end": "x\n" * (1 << 19),
    "steering": f"first\n{STEERING}\n{STEERING}",
    "zeros": "\0" * 5000,
}
INTERFACES: Mapping[str, str] = {
    # What a box prints of its addresses: the other nodes connect to the one on their network, to no other.
    "nothing": "",
    "another network": "172.17.0.2 8.8.8.8",
    "the network itself": "10.5.0.0/24",
    "a name": "10.5.0.2.evil.example evil.example",
    "leading zeros": "010.5.0.2",
    "a number": "168099842",
    "version 6": "::ffff:10.5.0.2 fd00::1",
    "a command": "$(10.5.0.2) `10.5.0.2`",
    "one that comes too late": "172.17.0.2 " * 1000 + "10.5.0.2",
    "steering": STEERING,
}
SUBNETS: Mapping[str, str] = {
    # Which network its provider says that it is.
    "nothing": "",
    "N/A": "N/A",
    "everything": "0.0.0.0/0",
    "half of everything": "10.0.0.0/1",
    "the internet": "8.8.8.0/24",
    "version 6": "fd00::/64",
    "too long": "10.5.0.0/99",
    "steering": STEERING,
}
