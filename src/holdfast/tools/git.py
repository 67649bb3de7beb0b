"""Tools that commit and push with git, and find out after a crash what they did."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from holdfast.core.errors import BadInput, PayloadTooLarge
from holdfast.core.payload import MAX_TEXT_BYTES
from holdfast.core.step_declarations import DidNotHappen, Happened, Unknown, Verdict, tool, verifiable
from holdfast.tools import git_config
from holdfast.tools.errors import GitFailed, shown
from holdfast.tools.file_locks import try_lock
from holdfast.tools.inputs import check_directory, check_seconds, check_word, current_key

TRAILER = "Holdfast-Key"
GRACE_S = 5.0
TIMEOUT_S = 300.0
# How long to wait for a lock on the index; a git that survived its starter may hold it.
LOCK_PATIENCE_S = 10.0
_BETWEEN_LOOKS_S = 0.05

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,199}")
_REMOTE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,199}")
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_FORGED = re.compile(rf"^\s*{TRAILER}\s*:", re.IGNORECASE | re.MULTILINE)
_MAX_ERROR_BYTES = 64 * 1024
# Without these, a file's attributes may name a program that git runs for a diff.
_PLAINLY = ("--no-ext-diff", "--no-textconv")
# Variables that would make git use another repository.
_ELSEWHERE = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_INDEX_FILE",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_WORK_TREE",
    }
)
_QUIETLY = {
    # No person can answer: no prompt, no editor, no window.
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_EDITOR": ":",
    "GIT_PAGER": "cat",
    "SSH_ASKPASS_REQUIRE": "never",
    "GCM_INTERACTIVE": "never",
    # Take paths literally: no `:(glob)`, no `*`.
    "GIT_LITERAL_PATHSPECS": "1",
    "LC_ALL": "C",
}

# A partial clone fetches what it lacks, from wherever its config says.
_OFFLINE = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0"}


class GitCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The new commit; with `is_empty` there was nothing to commit, and `sha` is HEAD."""

    sha: str
    is_empty: bool = False


class GitPush(msgspec.Struct, frozen=True, kw_only=True):
    """The pushed commit; the remote's branch has it, perhaps below newer ones."""

    sha: str
    ref: str
    remote: str


# --- commit


async def _verify_commit(
    repo: str,
    message: str,
    *,
    paths: Sequence[str] | None = None,
    all: bool = False,  # noqa: A002 - git's own word
    timeout_s: float = TIMEOUT_S,
    trust_repo: bool = False,
) -> Verdict:
    del message, paths, all
    return await find_commit(current_key(), repo, timeout_s=timeout_s, trust_repo=trust_repo)


@tool(
    effect=verifiable(_verify_commit, local=True, did_not_happen=BadInput),
    name="git_commit",
    raises=(GitFailed, BadInput),
)
async def git_commit(
    repo: str,
    message: str,
    *,
    paths: Sequence[str] | None = None,
    all: bool = False,  # noqa: A002 - git's own word
    timeout_s: float = TIMEOUT_S,
    trust_repo: bool = False,
) -> GitCommit:
    """Commit what is staged, or these paths, or all changes, once for each effect.

    The commit has the effect's key as a trailer, by which it is found after a crash, on any branch. If there
    is nothing to commit, the result is HEAD, with `is_empty`. Paths are names, not patterns, and new files
    among them are added. Never prompts.

    Hooks do not run, nor any program that the repository's own config names: an fsmonitor, a filter, an ssh
    command, a credential helper, a program that signs. Those of the user's own config do. With `trust_repo`
    all of them run as usual. The contents of submodules are not checked.

    `repo` is the top directory of a working tree; git must be 2.32 or newer. Raises GitFailed with git's
    message, and TimeoutError when git takes longer than `timeout_s` and was stopped.
    """
    return await commit(
        current_key(), repo, message, paths=paths, is_all=all, timeout_s=timeout_s, trust_repo=trust_repo
    )


async def commit(
    key: str,
    repo: str,
    message: str,
    *,
    paths: Sequence[str] | None = None,
    is_all: bool = False,
    timeout_s: float = TIMEOUT_S,
    trust_repo: bool = False,
) -> GitCommit:
    git = Git(repo, timeout_s, trust_repo=trust_repo)
    text, names = _checked_message(message), _checked_paths(paths)
    if is_all and names:
        raise BadInput("paths", "give either paths or all=True, not both")
    async with git.alone():
        return await _commit(git, key, text, names, is_all=is_all)


async def _commit(git: Git, key: str, text: str, names: Sequence[str], *, is_all: bool) -> GitCommit:
    if is_all or names:
        await git.change("add", "--all", *(("--", *names) if names else ()))
    is_merge = await git.succeeds("rev-parse", "--quiet", "--verify", "MERGE_HEAD")
    # `git diff --quiet` exits with 1 when something differs.
    if not is_merge and await git.succeeds("diff", *_PLAINLY, "--cached", "--quiet", "--", *names):
        if await git.succeeds("rev-parse", "--quiet", "--verify", "HEAD"):
            return GitCommit(sha=await git.head(), is_empty=True)
        raise GitFailed("commit", 1, "nothing to commit, and no commit yet")
    trailer = f"--trailer={TRAILER}: {_checked_key(key)}"
    # Not through standard input: if this process died while it wrote, git would commit half a message.
    await git.change("commit", "--quiet", "--cleanup=whitespace", f"--message={text}", trailer, "--", *names)
    # Not simply HEAD: another program may have committed since. (But a hook may remove the trailer.)
    return GitCommit(sha=await git.find_key(key, "--max-count=1") or await git.head())


async def find_commit(
    key: str, repo: str, *, timeout_s: float = TIMEOUT_S, trust_repo: bool = False
) -> Verdict:
    """Whether a commit with this key is anywhere in the repository."""
    git = Git(repo, timeout_s, trust_repo=trust_repo)
    try:
        # A git that survived its starter holds this lock, too, so it is done before the search.
        async with git.alone():
            return await _find_commit(git, key)
    except (GitFailed, TimeoutError) as error:
        return Unknown(str(error))


async def _find_commit(git: Git, key: str) -> Verdict:
    for patience_s in (LOCK_PATIENCE_S, 0.0):
        found = await git.find_key(key, "--all")
        if found is not None:
            return Happened(GitCommit(sha=found))
        lock = git.repo / await git.run("rev-parse", "--git-path", "index.lock")
        if not _is_there(lock):
            return DidNotHappen()
        # Another program's git, or one that was killed: search once more when it is done.
        if patience_s and not await _vanishes(lock, patience_s):
            break
    return Unknown(f"{lock} exists: a git is running or was killed; if none is running, remove it")


async def _vanishes(path: Path, patience_s: float) -> bool:
    give_up_at = time.monotonic() + patience_s
    while _is_there(path):
        if time.monotonic() >= give_up_at:
            return False
        await asyncio.sleep(_BETWEEN_LOOKS_S)
    return True


def _is_there(path: Path) -> bool:
    return path.exists()


# --- push


async def _verify_push(
    repo: str,
    branch: str,
    *,
    remote: str = "origin",
    sha: str | None = None,
    timeout_s: float = TIMEOUT_S,
    trust_repo: bool = False,
) -> Verdict:
    return await find_push(repo, branch, remote=remote, sha=sha, timeout_s=timeout_s, trust_repo=trust_repo)


@tool(
    effect=verifiable(_verify_push, local=True, did_not_happen=BadInput),
    name="git_push",
    raises=(GitFailed, BadInput),
)
async def git_push(
    repo: str,
    branch: str,
    *,
    remote: str = "origin",
    sha: str | None = None,
    timeout_s: float = TIMEOUT_S,
    trust_repo: bool = False,
) -> GitPush:
    """Push a branch to the branch of the same name of a configured remote. Never by force.

    With `sha`, push that commit and not the tip of the branch; after a crash, that commit is searched for.
    The push has happened if the remote's branch has the commit, perhaps below newer ones. Never prompts:
    credentials must be configured. Raises GitFailed with git's message, for example when the remote is ahead,
    and TimeoutError when git takes longer than `timeout_s`. Neither hooks nor programs that the repository's
    own config names run, unless `trust_repo` is given, as for `git_commit`.
    """
    git = Git(repo, timeout_s, trust_repo=trust_repo)
    ref, remote = await git.checked_ref(branch), await git.checked_remote(remote)
    wanted = await git.commit_of(ref, sha)
    pushed = GitPush(sha=wanted, ref=ref, remote=remote)
    try:
        await git.run("push", "--quiet", "--no-follow-tags", "--", remote, f"{wanted}:{ref}")
    except GitFailed:
        # The push may have succeeded although git reported an error: ask the remote.
        found = await find_push(
            repo, branch, remote=remote, sha=wanted, timeout_s=timeout_s, trust_repo=trust_repo
        )
        if found != Happened(pushed):
            raise
    return pushed


async def find_push(
    repo: str,
    branch: str,
    *,
    remote: str = "origin",
    sha: str | None = None,
    timeout_s: float = TIMEOUT_S,
    trust_repo: bool = False,
) -> Verdict:
    """Ask the remote whether its branch has the commit."""
    git = Git(repo, timeout_s, trust_repo=trust_repo)
    try:
        ref, remote = await git.checked_ref(branch), await git.checked_remote(remote)
        wanted = await git.commit_of(ref, sha)
        source = await git.where_pushes_go(remote)
        listed = await git.run("ls-remote", "--quiet", "--refs", "--", source, ref)
        theirs = next(
            (line.split("\t")[0] for line in listed.splitlines() if line.endswith(f"\t{ref}")), None
        )
        if theirs is None:
            return DidNotHappen()
        if theirs != wanted:
            if not await git.succeeds("cat-file", "-e", f"{theirs}^{{commit}}"):
                quiet = (
                    "--quiet",
                    "--no-tags",
                    "--no-write-fetch-head",
                    "--refmap=",
                    "--no-recurse-submodules",
                )
                await git.run("fetch", *quiet, "--", source, ref)
            if not await git.succeeds("merge-base", "--is-ancestor", wanted, theirs):
                return DidNotHappen()
    except (GitFailed, BadInput, TimeoutError) as error:
        return Unknown(str(error))
    return Happened(GitPush(sha=wanted, ref=ref, remote=remote))


# --- git itself


class Git:
    """The git command in one working tree."""

    def __init__(
        self, repo: object, timeout_s: object, *, trust_repo: object = False, is_offline: bool = False
    ) -> None:
        if not isinstance(trust_repo, bool):
            raise BadInput("trust_repo", f"True or False is needed, not {type(trust_repo).__name__}")
        self.repo = check_directory("repo", repo).resolve()
        self._needs_guard = not trust_repo
        self._timeout_s = check_seconds("timeout_s", timeout_s)
        self._inherited: tuple[int, ...] = ()
        env = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
        # Use this directory's own repository, never one of a directory above.
        self._env = env | _QUIETLY | {"GIT_CEILING_DIRECTORIES": str(self.repo.parent)}
        if is_offline:
            self._env |= _OFFLINE

    @contextlib.asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Hold a lock against other commits of these tools in this repository.

        Child processes inherit the lock, and the kernel drops it when the last of them has ended: so it also
        covers a git whose starter was killed.
        """
        path = self.repo / await self.run("rev-parse", "--git-path", "holdfast.lock")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise GitFailed("commit", 1, f"the lock {path} cannot be opened: {error.strerror}") from error
        try:
            give_up_at = time.monotonic() + self._timeout_s
            while not try_lock(descriptor):
                if time.monotonic() >= give_up_at:
                    raise GitFailed("commit", 1, f"another commit holds {path}")
                await asyncio.sleep(_BETWEEN_LOOKS_S)
            self._inherited = (descriptor,)
            yield
        finally:
            self._inherited = ()
            os.close(descriptor)

    async def run(self, command: str, *arguments: str) -> str:
        """Run git; returns its output without the final newline. Raises GitFailed."""
        status, out, err = await self._call(command, *arguments)
        if status != 0:
            raise GitFailed(command, status, err or out)
        return out.rstrip("\n")

    async def change(self, command: str, *arguments: str) -> None:
        """Run a git command that changes the index; wait while another program holds the index lock."""
        give_up_at = time.monotonic() + LOCK_PATIENCE_S
        while True:
            try:
                await self.run(command, *arguments)
            except GitFailed as error:
                if "index.lock': File exists" not in error.stderr or time.monotonic() >= give_up_at:
                    raise
                await asyncio.sleep(_BETWEEN_LOOKS_S)
            else:
                return

    async def succeeds(self, command: str, *arguments: str) -> bool:
        """Whether git exits with 0 (True) or 1 (False). Raises GitFailed for anything else."""
        status, out, err = await self._call(command, *arguments)
        if status not in (0, 1) and "Not a valid object name" not in err:
            raise GitFailed(command, status, err or out)
        return status == 0

    async def find_key(self, key: str, where: str) -> str | None:
        """The newest commit that has the key as its trailer."""
        # One key may be a prefix of another: search for the text, then compare the whole line.
        mark = f"{TRAILER}: {_checked_key(key)}"
        line = re.compile(rf"^\s*{re.escape(mark)}\s*$", re.MULTILINE)
        listed = await self.run(
            "log", where, "--no-show-signature", "--format=%H%x00%B%x01", "--fixed-strings", f"--grep={mark}"
        )
        for one in listed.split("\1"):
            sha, _, message = one.strip().partition("\0")
            if line.search(message):
                return sha
        return None

    async def head(self) -> str:
        return await self.run("rev-parse", "--verify", "HEAD")

    async def last_commit(self) -> tuple[str, str]:
        """The commit that HEAD names, and when it was committed, in ISO format. Raises GitFailed."""
        said = await self.run("log", "--max-count=1", "--no-show-signature", "--format=%H %cI", "HEAD")
        sha, _, moment = said.strip().partition(" ")
        return sha, moment

    async def commit_of(self, ref: str, sha: object) -> str:
        """The given commit, or else that of the ref. It must be in the repository."""
        if sha is not None and not _SHA.fullmatch(check_word("sha", sha)):
            raise BadInput("sha", "the 40 lowercase hexadecimal digits of a commit are needed")
        name = ref if sha is None else sha
        status, out, _ = await self._call("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
        if status != 0:
            raise BadInput("branch" if sha is None else "sha", f"{name} is not a commit in {self.repo}")
        return out.strip()

    async def checked_ref(self, branch: object) -> str:
        name = check_word("branch", branch)
        ref = name if name.startswith("refs/heads/") else f"refs/heads/{name}"
        # It cannot be taken for an option, because it begins with refs.
        if name.startswith("-") or not await self.succeeds("check-ref-format", ref):
            raise BadInput("branch", f"{name!r} cannot be the name of a branch")
        return ref

    async def checked_remote(self, remote: object) -> str:
        """Accept only a configured remote: an arbitrary address could name a program to run."""
        name = check_word("remote", remote)
        known = (await self.run("remote")).splitlines()
        if not _REMOTE.fullmatch(name) or name not in known:
            names = ", ".join(known) or "none"
            raise BadInput("remote", f"{shown(name)!r} is not a remote of {self.repo}; it has {names}")
        return name

    async def where_pushes_go(self, remote: str) -> str:
        """The remote, or its separate address for pushes if it has one."""
        fetches = await self.run("remote", "get-url", "--", remote)
        pushes = await self.run("remote", "get-url", "--push", "--", remote)
        return remote if fetches == pushes else pushes

    async def _guard(self, command: str) -> None:
        """From now on, do not run programs that the repository's own config names."""
        self._needs_guard = False
        # `git config --list` runs none of them.
        status, out, err = await self._call("config", "--null", "--show-scope", "--list")
        if status != 0:
            raise GitFailed("config", status, err or out)
        found = git_config.entries(out)
        program = git_config.cannot_be_kept_off(found)
        if program is not None:
            raise GitFailed(
                command,
                1,
                f"the config of {self.repo} names a program in {program}, which would run: remove it "
                f"(git config --unset-all {program}), or pass trust_repo=True",
            )
        self._env |= git_config.environment(git_config.overrides(found, self._env), self._env)

    async def _call(self, command: str, *arguments: str) -> tuple[int, str, str]:
        if self._needs_guard:
            await self._guard(command)
        try:
            git = await asyncio.create_subprocess_exec(
                *("git", command, *arguments),
                cwd=self.repo,
                env=self._env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                # Without a terminal there is no prompt, and Ctrl-C does not reach git.
                start_new_session=True,
                pass_fds=self._inherited,
            )
        except OSError as error:
            raise GitFailed(command, 127, f"git cannot be run: {error.strerror}") from error
        try:
            async with asyncio.timeout(self._timeout_s):
                out, err = await git.communicate()
        except TimeoutError:
            await _stop(git)
            raise TimeoutError(
                f"git {command} took more than {self._timeout_s:g} s and was stopped"
            ) from None
        except asyncio.CancelledError:
            await _stop(git)
            raise
        status = git.returncode
        assert status is not None
        return status, out.decode("utf-8", "replace"), err[-_MAX_ERROR_BYTES:].decode("utf-8", "replace")


async def _stop(git: asyncio.subprocess.Process) -> None:
    """Ask git to end, so that it removes its locks; kill it after the grace."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(git.pid, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await git.wait()
                return
        os.killpg(git.pid, signal.SIGKILL)
    await git.wait()


# --- checks of arguments


def _checked_message(message: object) -> str:
    text = check_word("message", message)
    if not text.strip():
        raise BadInput("message", "is empty")
    size = len(text.encode())
    if size > MAX_TEXT_BYTES:
        raise PayloadTooLarge("message", size, MAX_TEXT_BYTES)
    if _FORGED.search(text):
        raise BadInput("message", f"{TRAILER} is how a commit is found again; remove that line")
    return text


def _checked_paths(paths: object) -> list[str]:
    if paths is None:
        return []
    if not isinstance(paths, Sequence) or isinstance(paths, (str, bytes, bytearray, memoryview)):
        raise BadInput("paths", f"a list of paths is needed, not {type(paths).__name__}")
    names = [check_word("paths", path) for path in paths]
    if not names or not all(name.strip() for name in names):
        raise BadInput("paths", "a path is empty, or there is none")
    return names


def _checked_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise BadInput("key", f"{key!r} cannot be a trailer; use letters, digits, - and _")
    return key
