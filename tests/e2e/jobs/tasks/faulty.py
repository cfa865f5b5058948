"""Tasks that go wrong, as a user's own code may."""

from vastrun.trainer.data import advection


def hanging(config, folder):
    return _make("Hanging", config, folder)


def waiting(config, folder):
    return _make("Waiting", config, folder)


def leaving(config, folder):
    return _make("Leaving", config, folder)


def waiting_in_stages(config, folder):
    return _make("WaitingInStages", config, folder)


def _make(name, config, folder):
    import faults

    return getattr(faults, name)(*advection.load(config, folder))


generate = advection.generate
