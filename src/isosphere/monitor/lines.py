"""The monitor's file: opened at once, and then never the end of a user's loop."""

import json
from pathlib import Path

from isosphere.errors import NoFolder
from isosphere.losses.checks import warn
from isosphere.monitor.alarms import Record


class Lines:
    """Appends records as JSON lines to a file, opened each time. What cannot be written is lost, with a warning."""

    def __init__(self, file: str | Path, opened: bool = True) -> None:
        self.file = Path(file).absolute()  # where it is now: loops change folders
        if not self.file.parent.is_dir():
            raise NoFolder(str(self.file), str(self.file.parent))
        if opened:
            open(self.file, "ab+").close()
        self.begun = self.failed = False

    def append(self, records: list[Record]) -> None:
        """Add these. Another monitor's lines, whose steps are not ours, end with a line of the kind "start"."""
        text = "".join(json.dumps(record) + "\n" for record in records)
        try:
            with open(self.file, "ab+") as lines:
                size = lines.tell()
                if self.failed and size and lines.seek(size - 1) and lines.read() != b"\n":  # a line was cut short
                    text = f"\n{text}"
                elif not self.begun and size:
                    text = json.dumps({"step": records[0]["step"], "kind": "start"}) + "\n" + text
                lines.write(text.encode())
            self.begun = True
        except OSError as error:
            if not self.failed:
                why = error.strerror or error
                warn(f"{self.file} cannot be written ({why}): the loop goes on, lines of the monitor are lost")
            self.failed = True
