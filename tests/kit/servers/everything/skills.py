"""Skills: two of them, in pages of one, with folders that can be read.

`SKILLS_OF` in the environment is a word that their texts contain, so that two servers have equal skills with other
texts; `SKILLS_LOG` is a file to which every read of a file of a skill is written; `SKILLS_SETTINGS` is what is
declared of them.
"""

import json
import os
from hashlib import sha256
from pathlib import Path

from call import Call
from pipe import META, Json, Refused, fresh

OF = os.environ.get("SKILLS_OF", "everything")
DIRECTORY = "inode/directory"
SETTINGS = os.environ.get("SKILLS_SETTINGS", '{"directoryRead": true}')
EXTENSION: Json = {META + "skills": json.loads(SETTINGS)}
DESCRIPTIONS = {
    "pdf-forms": f"Fill forms in portable documents, with {OF}",
    "git/release": f"Publish a release of a repository, with {OF}",
}


def text_of(path: str) -> str:
    name = path.rpartition("/")[2]
    return f"---\nname: {name}\ndescription: {DESCRIPTIONS[path]}\n---\n\nSee references/MORE.md.\n"


FILES = {
    f"skill://{path}/{file}": text
    for path in DESCRIPTIONS
    for file, text in (("SKILL.md", text_of(path)), ("references/MORE.md", f"More of {OF}.\n"))
}


def entry(path: str) -> Json:
    front = {"name": path.rpartition("/")[2], "description": DESCRIPTIONS[path]}
    files = [
        {"uri": uri, "digest": f"sha256:{sha256(text.encode()).hexdigest()}", "size": len(text)}
        for uri, text in FILES.items()
        if uri.startswith(f"skill://{path}/")
    ]
    return {"uri": f"skill://{path}/SKILL.md", "frontmatter": front, "resources": files, "x": 1.0}


def listed() -> list[Json]:
    """The main files as resources."""
    return [
        {"uri": one["uri"], **one["frontmatter"], "mimeType": "text/markdown"}
        for one in map(entry, DESCRIPTIONS)
    ]


async def skills(call: Call) -> Json:
    page = int(call.params.get("cursor", "0"))
    paths = list(DESCRIPTIONS)
    more = {"nextCursor": str(page + 1)} if page + 1 < len(paths) else {}
    return {"skills": [entry(paths[page])], **more, **fresh(60_000)}


async def skill(call: Call) -> Json:
    for one in map(entry, DESCRIPTIONS):
        if one["uri"] == call.params["uri"]:
            return {"skill": one, **fresh(60_000)}
    raise Refused(-32602, "Unknown skill", {"uri": call.params["uri"]})


async def read_directory(call: Call) -> Json:
    folder = f"{call.params['uri']}/"
    inside = [uri.removeprefix(folder) for uri in FILES if uri.startswith(folder)]
    if not inside:
        raise Refused(-32602, "Not a directory", {"uri": call.params["uri"]})
    names = dict.fromkeys(rest.partition("/")[0] for rest in inside)
    parts = [
        {
            "uri": folder + name,
            "name": name,
            "mimeType": "text/markdown" if name in inside else DIRECTORY,
        }
        for name in names
    ]
    return {"resources": parts, **fresh(60_000)}


def file_of_skill(uri: str) -> str | None:
    if uri in FILES and (log := os.environ.get("SKILLS_LOG")):
        with Path(log).open("a") as file:
            file.write(f"{OF} {uri}\n")
    return FILES.get(uri)
