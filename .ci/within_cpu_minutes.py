"""Runs a command, says how many CPU minutes it and all it started took, and fails above a limit.

    python .ci/within_cpu_minutes.py LIMIT COMMAND...

CPU time and not wall time: a busy machine makes nothing fail, and two cores hide nothing.
"""

import resource
import subprocess
import sys


def main(limit: float, command: list[str]) -> int:
    status = subprocess.run(command, check=False).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    minutes = (used.ru_utime + used.ru_stime) / 60
    print(f"CPU minutes of {' '.join(command)}: {minutes:.1f} (limit {limit:g})", flush=True)
    return status or int(minutes > limit)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
