#!/bin/sh
# The script of a launcher is mounted over this file. Open MPI expects an executable file of this path in workers, too.
echo 'kubeexec.sh: only the launcher of a job reaches its workers' >&2
exit 255
