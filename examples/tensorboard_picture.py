"""Make a picture of what TensorBoard shows of a run: TensorBoard on this machine, seen by a headless Chromium.

    python examples/tensorboard_picture.py checkpoints/gpt_tiny tensorboard.png --tags 'loss|lr/0|eval'

Needs the extra `dev` (TensorBoard) and Chromium (Debian: `apt-get install chromium`).
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

START_S = 60.0
LOAD_MS = 20_000


def main() -> None:
    """Take the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("events", type=Path, help="folder of event files, or one with runs in it")
    parser.add_argument("picture", type=Path, help="PNG to write")
    parser.add_argument("--tags", default="", help="regular expression of the tags to show")
    parser.add_argument("--size", default="1480,1010", help="width,height in pixels")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("error: chromium must be installed\nhint: apt-get install chromium")
    port = free_port()
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "tensorboard.main", "--logdir", str(arguments.events)),
            *("--host", "localhost", "--port", str(port), "--load_fast", "false"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(port)
        options = {"tagFilter": arguments.tags, "_smoothingWeight": 0}
        shown = urllib.parse.urlencode(options, quote_via=urllib.parse.quote)
        with tempfile.TemporaryDirectory() as profile:
            subprocess.run(
                [
                    *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
                    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
                    *(f"--user-data-dir={profile}", f"--window-size={arguments.size}", "--hide-scrollbars"),
                    *(f"--virtual-time-budget={LOAD_MS}", f"--screenshot={arguments.picture.absolute()}"),
                    f"http://localhost:{port}/?darkMode=false#scalars&{shown}",
                ],
                check=True,
                capture_output=True,
                timeout=120,
            )
    finally:
        server.terminate()
        server.wait()


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return int(found.getsockname()[1])


def wait_for(port: int) -> None:
    """Wait until TensorBoard has read the events."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"http://localhost:{port}/data/plugin/scalars/tags") as answer:
                if answer.read() not in (b"{}", b""):
                    return
        except (urllib.error.URLError, ConnectionError):
            pass
        time.sleep(0.5)
    sys.exit(f"error: TensorBoard did not answer within {START_S:.0f} s, or found no events")


if __name__ == "__main__":
    main()
