import os
import sys
from pathlib import Path

import pytest

from engine_adapters.vllm.testing.engine_process import EngineProcess
from engine_adapters.vllm.testing.errors import EngineError
from engine_adapters.vllm.testing.fork_server import ForkServer

CHILD = """
import time
from engine_adapters.vllm.testing.engine_child import obey

class Child:
    def __init__(self, arguments):
        self.arguments = arguments

    def model(self):
        return self.arguments["model"]

    def wait_for_nothing(self):
        time.sleep(600)

obey(Child)
"""


def test_an_engine_that_hung_kept_its_caller_until_the_suite_was_cut_off(tmp_path: Path) -> None:
    """*Bug:* nobody knew where it hung. An engine that does not answer says where it is."""
    (tmp_path / "hanging_child.py").write_text(CHILD)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    with ForkServer(
        sys.executable, environment, modules=["engine_adapters.vllm.testing.engine_child"]
    ) as server:
        engine = EngineProcess(
            tmp_path, tmp_path / "log", module="hanging_child", copies=server, answer_s=60.0
        )
        with engine:
            assert engine.ask("model") == str(tmp_path)
            # Its start may take longer on a busy machine.
            engine._answer_s = 2.0
            with pytest.raises(EngineError, match=r"(?s)not answer for 2 s.*wait_for_nothing"):
                engine.ask("wait_for_nothing")
