"""Makes a Python on Linux say that it is a Mac's: without Linux's own names, and without /proc and /sys.

It takes effect in every process whose PYTHONPATH names this folder.
"""

import errno
import os
import sys
import sysconfig
from types import ModuleType

LINUX_ONLY = {
    "os": (
        *(
            "copy_file_range",
            "eventfd",
            "eventfd_read",
            "eventfd_write",
            "fdatasync",
            "memfd_create",
            "pidfd_open",
        ),
        *("getrandom", "getxattr", "listxattr", "removexattr", "setxattr", "pipe2", "splice"),
        *(
            "getresgid",
            "getresuid",
            "setresgid",
            "setresuid",
            "posix_fadvise",
            "posix_fallocate",
            "setns",
            "unshare",
        ),
        *("sched_getaffinity", "sched_setaffinity", "sched_getparam", "sched_getscheduler", "sched_setparam"),
        *("sched_rr_get_interval", "sched_setscheduler", "sched_param"),
        *("O_DIRECT", "O_LARGEFILE", "O_NOATIME", "O_PATH", "O_RSYNC", "O_TMPFILE", "XATTR_CREATE"),
    ),
    "_signal": (
        *("pidfd_send_signal", "sigtimedwait", "sigwaitinfo", "SIGCLD", "SIGPOLL", "SIGPWR", "SIGRTMIN"),
        *("SIGRTMAX", "SIGSTKFLT"),
    ),
    "select": ("epoll", "POLLRDHUP", "POLLMSG"),
    "_socket": (
        *(
            "AF_ALG",
            "AF_CAN",
            "AF_NETLINK",
            "AF_PACKET",
            "AF_VSOCK",
            "IP_BIND_ADDRESS_NO_PORT",
            "IP_TRANSPARENT",
        ),
        *("MSG_CMSG_CLOEXEC", "MSG_MORE", "MSG_NOSIGNAL", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_BINDTODEVICE"),
        *("SO_DOMAIN", "SO_MARK", "SO_PASSCRED", "SO_PEERCRED", "SO_PEERSEC", "SO_PRIORITY", "SO_PROTOCOL"),
        *("TCP_CONGESTION", "TCP_CORK", "TCP_DEFER_ACCEPT", "TCP_INFO", "TCP_KEEPIDLE", "TCP_LINGER2"),
        *("TCP_QUICKACK", "TCP_SYNCNT", "TCP_USER_TIMEOUT", "TCP_WINDOW_CLAMP"),
    ),
    "time": ("CLOCK_BOOTTIME", "CLOCK_TAI", "pthread_getcpuclockid"),
    "fcntl": (
        *(
            "F_ADD_SEALS",
            "F_GETPIPE_SZ",
            "F_GET_SEALS",
            "F_NOTIFY",
            "F_OFD_GETLK",
            "F_OFD_SETLK",
            "F_OFD_SETLKW",
        ),
        *("F_SETPIPE_SZ", "F_SETSIG", "F_GETSIG", "LOCK_MAND"),
    ),
    "resource": (
        "prlimit",
        "RLIMIT_MSGQUEUE",
        "RLIMIT_NICE",
        "RLIMIT_OFILE",
        "RLIMIT_RTPRIO",
        "RLIMIT_SIGPENDING",
    ),
}
_ABSENT = ("/proc", "/sys")


def _forget() -> None:
    """No module has Linux's names any more, nor the modules that others are made of."""
    for name, linux_only in LINUX_ONLY.items():
        for module in (__import__(name), sys.modules.get("posix") if name == "os" else None):
            for word in linux_only:
                if module is not None and hasattr(module, word):
                    delattr(module, word)


def _is_absent(path: object) -> bool:
    if not isinstance(path, (str, bytes, os.PathLike)):
        return False
    text = os.path.normpath(os.fsdecode(path))
    return text.startswith(tuple(f"{root}/" for root in _ABSENT)) or text in _ABSENT


def _guard(event: str, arguments: tuple[object, ...]) -> None:
    """What opens a file or lists a folder comes by here, also from modules in C."""
    if event in ("open", "os.listdir", "os.scandir") and _is_absent(arguments[0]):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(arguments[0]))


def _hide(name: str) -> None:
    """The function `name` of os finds nothing there."""
    real = getattr(os, name)

    def looked(path, *arguments, **options):
        if _is_absent(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return real(path, *arguments, **options)

    setattr(os, name, looked)


def _pretend() -> None:
    """The names by which programs tell a Mac; and the one module of a Mac's that the HTTP client asks."""
    sysconfig.get_config_vars()  # from now on it would look for a file of a Mac's own
    real = os.uname()
    mac = os.uname_result(("Darwin", real.nodename, "24.0.0", "Darwin Kernel Version 24.0.0", real.machine))
    os.uname = lambda: mac
    sys.platform = "darwin"
    proxies = ModuleType("_scproxy")
    proxies._get_proxy_settings = lambda: {"exclude_simple": False}
    proxies._get_proxies = dict
    sys.modules["_scproxy"] = proxies


_forget()
for _name in ("stat", "lstat", "readlink", "access"):
    _hide(_name)
sys.addaudithook(_guard)
_pretend()
