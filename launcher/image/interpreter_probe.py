"""Say which wheels a Python can use: print its version, the C library's version and the machine, as JSON.

It is run by the Python of an image (`wheels.py`): standard library only.
"""

import json
import platform
import sys

if __name__ == "__main__":
    major, minor = sys.version_info[:2]
    print(json.dumps([major, minor, platform.libc_ver()[1], platform.machine()]))
