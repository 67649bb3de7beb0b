"""What stands in for the model: it needs two turns, and keeps what it was asked in the file `asked`."""

import json
import os
import pathlib
import re


def think(prompt: str) -> str:
    """Its answer, with a checkpoint in it unless the prompt holds a resume packet."""
    with pathlib.Path("asked").open("a") as file:
        file.write(json.dumps(prompt) + "\n")
    packet = re.search(r'^\{"task":"Resume.*$', prompt, re.MULTILINE)
    if packet is not None:
        return f"Finished: {', '.join(json.loads(packet[0])['resume']['next_actions'])}"
    document = {
        "task_id": os.environ["HOLDFAST_TASK_ID"],
        "goal": "tides",
        "status": "waiting",
        "current_step": "dedupe",
        "progress_pct": 40,
        "last_completed": ["fetch"],
        "next_actions": ["dedupe", "export"],
        "artifacts": [],
        "errors": [],
        "retry_count": 0,
        "updated_at": "2026-03-01T12:00:00Z",
    }
    # In a block, as models like to write it.
    return f"I need more time.\n```\nHOLDFAST_CHECKPOINT {json.dumps(document)}\n```"
