"""What a shell in a slot can do besides its verbs: what the shell of the held machine can."""

from tests.fakes import FakeClock, FakeProvider
from tests.launcher.pool.test_held_machines import held
from tests.remote_abilities import AbleRemote, BareRemote, abilities_of
from vastrun.launcher import ports
from vastrun.launcher.core import Instance
from vastrun.launcher.pool.machine import HeldMachine


class OneMachine(FakeProvider):
    """A provider with one machine, on which a given remote opens."""

    def __init__(self, remote: ports.Remote) -> None:
        super().__init__(FakeClock())
        self._remote = remote

    def machine(self, instance_id: str) -> Instance | None:
        return Instance(id=instance_id, label="", state="running", usd_per_hour=8.0, rented_at=0.0)

    def connect(self, instance: Instance) -> ports.Remote:
        return self._remote


def slot_on(remote: ports.Remote) -> ports.Remote:
    return HeldMachine(held(), OneMachine(remote)).connect("calm")


def test_every_optional_interface_of_a_remote_is_handed_on() -> None:
    # `isinstance` asks a remote for them, which the type checker allows of these protocols alone.
    interfaces = {
        one for one in vars(ports.abilities).values() if getattr(one, "_is_runtime_protocol", False)
    }
    assert interfaces == set(ports.REMOTE_ABILITIES)


def test_a_slot_has_every_ability_of_its_machine_on_every_python() -> None:
    machine = AbleRemote()
    slot = slot_on(machine)
    assert abilities_of(slot) == abilities_of(machine)
    assert isinstance(slot, ports.Interruptible)
    slot.abort()
    assert machine.aborted == 1


def test_a_slot_of_a_machine_without_abilities_has_none_of_them() -> None:
    slot = slot_on(BareRemote())
    assert not abilities_of(slot) & {ports.ChecksIdentity, ports.Interruptible, ports.OpensTerminal}
