"""The provider `ssh-machines`: an instance is a folder on a workstation, and the processes started in it."""

from vastrun_ssh_machines.provider import SshMachinesProvider as SshMachinesProvider
