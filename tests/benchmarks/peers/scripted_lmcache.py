"""Plays ``lmcache bench l2``: what was stored is loaded, over files alone."""

import json
import sys
from pathlib import Path


def main() -> None:
    """Answers as LMCache does: one operation, in a file."""
    named = dict(zip(sys.argv, sys.argv[1:], strict=False))
    adapter = json.loads(named["--l2-adapter"])
    if adapter["type"] == "broken":
        sys.exit("no such adapter")
    objects = int(named["--num-keys"]) * int(named["--rounds"])
    if "base_path" in adapter:
        kept = Path(adapter["base_path"]) / "kept"
        if named["--only"] == "store":
            kept.write_text("stored")
        objects *= kept.exists()
    operation = {
        "operation": named["--only"],
        "total_success": objects,
        "duration_avg_ms": 2.0,
    }
    report = {"metrics": {"config": {}, "op_0": operation}}
    Path(named["--output"]).write_text(json.dumps(report))


if __name__ == "__main__":
    main()
