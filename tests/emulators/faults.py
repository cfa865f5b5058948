"""Faults by name: what goes wrong, where, and how often."""

from collections.abc import Mapping
from dataclasses import dataclass

REQUEST = "request"
CREATE = "create"
BOOT = "boot"
HARDWARE = "hardware"
ROW = "row"
SSH = "ssh"
KEYS = "keys"
ATTACH = "attach"
RUNNING = "running"
STATE = "state"
DESTROY = "destroy"
READ = "read"
NETWORK = "network"
SCHEDULE = "schedule"

FAULTS: Mapping[str, tuple[str, str]] = {
    # name: (where it strikes, what happens)
    "too_many_requests": (REQUEST, "429, plain text"),
    "too_many_requests_json": (REQUEST, "429, JSON with retry_after"),
    "too_many_requests_header": (REQUEST, "429 with Retry-After"),
    "server_error": (REQUEST, "500, nothing is done"),
    "bad_gateway": (REQUEST, "502, nothing is done"),
    "bad_gateway_done": (REQUEST, "502, yet it is done"),
    "no_answer": (REQUEST, "the connection closes, nothing is done"),
    "no_answer_done": (REQUEST, "the connection closes, yet it is done"),
    "slow_answer": (REQUEST, "it is done, the answer takes `seconds`"),
    "invalid_key": (REQUEST, "404 Invalid user key"),
    "two_factor": (REQUEST, "401, two-factor authentication is needed"),
    "not_json": (REQUEST, "200 with a page of HTML"),
    "null_answer": (REQUEST, "200 with null"),
    "list_answer": (REQUEST, "200 with an empty list"),
    "text_answer": (REQUEST, "200 with a string"),
    "no_such_ask": (CREATE, "410, somebody else was faster"),
    "unknown_ask": (CREATE, "404, the offer's id is not known"),
    "no_such_ask_400": (CREATE, "400 no_such_ask"),
    "insufficient_credit": (CREATE, "400, no money"),
    "spend_rate_limit": (CREATE, "400, the account may not spend so fast"),
    "bid_rejected": (CREATE, "200 success false with a message, and a stopped instance"),
    "bid_pending": (CREATE, "200 success false without a reason, and it starts `seconds` later, 10 without"),
    "bid_never": (CREATE, "200 success false without a reason, and a stopped instance"),
    "create_late": (CREATE, "the connection closes, and it is rented `seconds` later, 20 without"),
    "create_twice": (CREATE, "success, and once more `seconds` later, at once without"),
    "create_denied_done": (CREATE, "400, no money, yet it is rented"),
    "create_names_other": (CREATE, "success, with the id of the account's oldest instance; it is rented"),
    "refusal_names_other": (CREATE, "success false, with the id of the account's oldest instance"),
    "created_stopped": (CREATE, "success, but the instance is stopped: the race was lost"),
    "stuck_loading": (BOOT, "loads for ever, status_msg does not change"),
    "slow_loading": (BOOT, "loads `seconds` longer, 600 without; status_msg does not change meanwhile"),
    "never_scheduled": (BOOT, "loading, cur_state and intended_status stopped"),
    "oci_failure": (BOOT, "created, stopped, OCI and CDI text: broken GPU app"),
    "image_not_found": (BOOT, "loading, manifest not found"),
    "pull_denied": (BOOT, "loading, pull access denied"),
    "registry_limit": (BOOT, "toomanyrequests for `seconds`, 600 without; then it loads"),
    "pull_unreachable": (BOOT, "loading, error pulling image configuration"),
    "gpu_error": (BOOT, "loading, GPU error, unable to start instance"),
    "pull_eof": (BOOT, "loading, unexpected EOF"),
    "pull_no_space": (BOOT, "loading, no space left on device"),
    "build_failure": (BOOT, "loading, intended stopped, docker_build() error"),
    "daemon_log_image": (BOOT, "created, stopped, no text; the daemon log says that the image is unknown"),
    "daemon_log_host": (BOOT, "created, stopped, unknown text; the daemon log names the host's fault"),
    "daemon_log_noise": (BOOT, "created, stopped, no text; a daemon log of megabytes that steers a terminal"),
    "daemon_log_late": (BOOT, "created, stopped, no text; the daemon log is never ready"),
    "pull_slow": (BOOT, "loads `seconds` longer, 3000 without; its layers move on meanwhile"),
    "onstart_skipped": (BOOT, "the onstart text is not run on this start"),
    "onstart_by_sh": (BOOT, "/bin/sh runs the onstart text, whatever its first line says"),
    "no_container_key": (BOOT, "CONTAINER_API_KEY is not injected"),
    "log_noise": (BOOT, "the log fills with refused port forwardings"),
    "wrong_gpu": (HARDWARE, "another GPU model than offered"),
    "fewer_gpus": (HARDWARE, "one GPU less than offered"),
    "small_disk": (HARDWARE, "half of the disk that was asked for"),
    "low_memory": (HARDWARE, "half of the memory that was offered"),
    "old_driver": (HARDWARE, "driver and CUDA older than offered"),
    "gpu_memory_used": (HARDWARE, "programs of others hold all but 1,140 MiB of its GPUs' memory"),
    "higher_price": (HARDWARE, "half as much again as offered"),
    "malformed_row": (ROW, "start_date and extra_env are null, once a reading"),
    "no_ports": (ROW, "ports is null although it runs"),
    "ports_list": (ROW, "ports is a list of numbers, as in Vast's documentation, once a reading"),
    "port_null": (ROW, "HostPort is null although it runs"),
    "port_empty": (ROW, "the published port of 22/tcp is an empty object"),
    "odd_columns": (ROW, "columns that are not needed hold values of other types"),
    "listed_loading": (ROW, "actual_status says loading although it runs and is billed"),
    "status_lag": (ROW, "actual_status says exited although it runs"),
    "traffic_null": (ROW, "the counters of traffic are null"),
    "traffic_jumps": (ROW, "the counters of traffic read a million times a megabyte"),
    "ssh_late": ("late ssh", "both addresses reset connections for `seconds`, 30 without"),
    "slow_network": (SSH, "200 kB a second through both addresses"),
    "ssh_refused": (SSH, "both addresses reset connections"),
    "ssh_silent": (SSH, "both addresses time out"),
    "proxy_refused": (SSH, "the proxy resets connections, direct works"),
    "direct_refused": (SSH, "the direct address resets connections, the proxy works"),
    "direct_silent": (SSH, "the direct address times out, the proxy works"),
    "ssh_denied": (SSH, "no key is accepted"),
    "key_modes_wrong": (KEYS, "whenever keys are written, others may write authorized_keys and ~/.ssh"),
    "key_owner": (KEYS, "whenever keys are written, authorized_keys and ~/.ssh are another user's"),
    "attach_refused": (ATTACH, "400, no key is attached to the instance"),
    "attach_denied": (ATTACH, "403, the API key may not attach keys; nor is there a key in the environment"),
    "attach_lost": (ATTACH, "200, and nothing is done; nor is there a key in the environment"),
    "ssh_impostor": (SSH, "somebody else's sshd answers at both addresses"),
    "outbid": (RUNNING, "somebody takes the GPU after `seconds` of running"),
    "host_offline": (RUNNING, "the host is gone, actual_status offline"),
    "no_heartbeat": (RUNNING, "actual_status unknown, the box works"),
    "frozen": (RUNNING, "actual_status frozen, billed on"),
    "container_exits": (RUNNING, "the container ends by itself, billed for disk"),
    "network_cut": (RUNNING, "the box is silent for `seconds`, 10 without"),
    "credit_zero": (RUNNING, "the account's credit is gone: all instances stop"),
    "price_rises": (RUNNING, "it costs twice as much, after `seconds` of running"),
    "price_falls": (RUNNING, "it costs half as much, after `seconds` of running"),
    "relabelled": (RUNNING, "the user gives it another label, after `seconds` of running"),
    "contract_end": (RUNNING, "the host takes the machine back: stopped, cannot be started"),
    "destroy_delayed": (DESTROY, "200, but the instance stays for `seconds`, 5 without"),
    "destroy_ignored": (DESTROY, "200, and nothing happens"),
    "row_reappears": (DESTROY, "gone, seen again after `seconds`, 1 without, then gone for good"),
    "hidden_row": (READ, "the list leaves an instance out for `seconds`, 20 without; by its id it is there"),
    "absent_row": (READ, "neither the list nor its id shows an instance for `seconds`, 8 without"),
    "frozen_list": (READ, "the list stays what it was for `seconds`, 20 without"),
    "count_off": (READ, "the list counts one more than it has rows for `seconds`, 20 without"),
    "null_row": (READ, "one row of the list is null"),
    "row_in_list": (READ, "by its id, an instance comes in a list"),
    "word_row": (READ, "by its id, an instance is a word"),
    "rows_in_object": (READ, "instances come in an object, by their positions"),
    "empty_list": (READ, "the list has no rows, though it counts them"),
    "invalid_token": (READ, "400, the page's token is not known any more"),
    "logs_late": (READ, "the result_url never has a result"),
    "search_quota": (READ, "429 search_quota_exceeded until midnight"),
    "odd_offers": (READ, "no offer has an end_date, one no gpu_ram, one a text for its price"),
    "no_offers": (READ, "the search finds nothing"),
    "filters_ignored": (READ, "the search does not apply filters"),
    "search_capped": (READ, "a search answers with 64 offers at most, whatever its limit says"),
    "cuda_alone": (READ, "a search by cuda_max_good finds nothing without compute_cap"),
    "names_underscored": (READ, "a search writes and reads the names of GPUs with underscores"),
    "overlays_off": (NETWORK, "404, there are no overlays"),
    "overlay_read_denied": (NETWORK, "403, the key lacks user_read: overlays cannot be listed"),
    "overlay_denied": (NETWORK, "403, the key lacks user_write: no overlay is made"),
    "overlay_made_unsaid": (NETWORK, "the connection closes, yet the overlay is made"),
    "join_refused": (NETWORK, "400, the instance may not join the overlay, and is not created"),
    "no_interface": (NETWORK, "the instance has no interface on its overlay"),
    "overlay_stays": (NETWORK, "200, and the overlay is not deleted"),
    "overlay_in_use": (NETWORK, "400, the overlay still has instances, though they are gone"),
    "schedule_denied": (SCHEDULE, "401, the key lacks the route: nothing is scheduled, listed or removed"),
    "schedule_late": (SCHEDULE, "it is sent `seconds` after each full hour, an hour without"),
    "schedule_never": (SCHEDULE, "it is never sent"),
    "schedule_stays": (SCHEDULE, "200, and it is not removed"),
}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a fault may strike."""

    endpoint: str | None = None
    machine_id: int | None = None
    instance_id: int | None = None


@dataclass
class Fault:
    """A fault that waits for its moment."""

    name: str
    times: int = 1
    after: int = 0
    """Spares so many chances first."""
    endpoint: str | None = None
    machine_id: int | None = None
    instance_id: int | None = None
    seconds: float | None = None
    every: int = 0
    """Strikes again at every so many chances, for ever; 0: only as often as `times` says."""

    def fits(self, place: Place) -> bool:
        """Whether this is the place it waits for."""
        return (
            self.endpoint in (None, place.endpoint)
            and self.machine_id in (None, place.machine_id)
            and self.instance_id in (None, place.instance_id)
        )


class Faults:
    """What is going to go wrong."""

    def __init__(self) -> None:
        self._waiting: list[Fault] = []
        self.struck: list[str] = []
        """Names, in the order in which they struck."""

    def add(
        self,
        name: str,
        *,
        times: int = 1,
        after: int = 0,
        endpoint: str | None = None,
        machine_id: int | None = None,
        instance_id: int | None = None,
        seconds: float | None = None,
        every: int = 0,
    ) -> Fault:
        """The fault strikes at its next `times` chances: where a place is named, only there.

        `every`: or for ever, at every so many chances.

        RUNNING faults strike a running instance, after `seconds` of running where that is given.
        """
        if name not in FAULTS:
            raise ValueError(f"no fault is called {name!r}; known: {', '.join(FAULTS)}")
        fault = Fault(name, times, after, endpoint, machine_id, instance_id, seconds, every)
        self._waiting.append(fault)
        return fault

    def take(self, name: str, place: Place = Place()) -> Fault | None:
        """The fault if it strikes here and now."""
        fault = self.waiting(name, place)
        if fault is None:
            return None
        if fault.after > 0:
            fault.after -= 1
            return None
        fault.times -= 1
        if fault.every:
            fault.after = fault.every - 1
        elif fault.times <= 0:
            self._waiting.remove(fault)
        self.struck.append(name)
        return fault

    def first(self, where: str, place: Place, *, but: str = "") -> Fault | None:
        """The first fault of a kind that strikes here."""
        for name in [fault.name for fault in self._waiting if FAULTS[fault.name][0] == where]:
            fault = self.take(name, place) if name != but else None
            if fault:
                return fault
        return None

    def waiting(self, name: str, place: Place) -> Fault | None:
        """The fault that waits for this place, which is left waiting."""
        return next((one for one in self._waiting if one.name == name and one.fits(place)), None)

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self._waiting.clear()
