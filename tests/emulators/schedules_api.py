"""Endpoints of scheduled requests."""

from tests.emulators.answers import ApiError, Reply, refusal, reply
from tests.emulators.behaviour import refused, worded
from tests.emulators.call import Call, Route
from tests.emulators.world import World

_NEEDED = ("start_time", "end_time", "api_endpoint", "request_method", "instance_id")


def list_jobs(world: World, call: Call) -> Reply:
    """All of them."""
    _admit(world)
    return reply(
        [{"id": job.id, **job.row, "created_at": job.changed_at} for job in world.schedules.jobs.values()]
    )


def add_job(world: World, call: Call) -> Reply:
    """One more."""
    _admit(world)
    if missing := [name for name in _NEEDED if call.body.get(name) is None]:
        raise refusal(400, "invalid_args", f"missing: {', '.join(missing)}")
    there, again = world.schedules.of(call.number("instance_id")), world.behaviour.word("schedule.again")
    if there is not None and not again.startswith("2"):
        status, _, error = again.partition(" ")
        raise refusal(int(status), error, "A scheduled job exists.", scheduled_job_id=there.id)
    early = world.behaviour.word("schedule.early") == "yes"
    return reply({"scheduled_job_id": world.schedules.add(call.body, early=early).id})


def change_job(world: World, call: Call) -> Reply:
    """At other times."""
    _admit(world)
    return reply({"scheduled_job_id": world.schedules.change(call.id, call.body).id})


def remove_job(world: World, call: Call) -> Reply:
    """One less."""
    _admit(world)
    word = world.behaviour.word("schedule.removed")
    if word.startswith("2"):
        world.schedules.remove(call.id)
    return worded(reply({"success": True}), word)


def _admit(world: World) -> None:
    word = world.behaviour.word("schedule.answer")
    if not word.startswith("200"):
        raise ApiError(refused(word))
    if world.faults.take("schedule_denied"):
        msg = "This key lacks the api.commands.schedule_job route access"
        raise ApiError(reply({"success": False, "error": "unauthorized", "msg": msg}, status=401))


ROUTES = (
    Route("GET", "/v0/commands/schedule_job", "list_schedules", "", list_jobs),
    Route("POST", "/v0/commands/schedule_job", "add_schedule", "", add_job),
    Route("PUT", "/v0/commands/schedule_job/#", "change_schedule", "", change_job),
    Route("DELETE", "/v0/commands/schedule_job/#", "remove_schedule", "", remove_job),
)
