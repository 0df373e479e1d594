"""Make `.venv` match requirements.lock and pyproject.toml; nothing happens when it already does.

Started by every make target that needs the environment, with whatever Python the user has, so this file must
parse on old ones: the refusals below are the point. pip finds its registry by the user's own configuration.

What holds on return: `.venv/bin/trajlake` runs the tree this file stands in, and every package has the version and
hash of the lock. A set-up that was cut short is done again, because the stamp is written last.
"""

import hashlib
import os
import subprocess
import sys

PYTHON_MIN = (3, 11)
PROJECT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(PROJECT, ".venv")
VENV_PYTHON = os.path.join(VENV, "bin", "python")
LOCK = os.path.join(PROJECT, "requirements.lock")
STAMP = os.path.join(VENV, "trajlake-set-up")
PIP_ENV_FOREIGN = ("PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_REQUIRE_HASHES", "PYTHONPATH", "PYTHONHOME")
"""Settings that would send the packages elsewhere, or refuse the project itself for having no hash."""


def main():
    refusal = refuse(sys.version_info[:2], sys.executable)
    if refusal:
        sys.stderr.write("trajlake set-up: %s\n" % refusal)
        return 3
    with open(os.path.join(PROJECT, "pyproject.toml"), "rb") as held:
        # Two makes at once (an editor's and a shell's) take turns.
        lock_exclusively(held)
        return set_up()


def refuse(version, executable):
    """Return one line that says why this Python cannot make the environment, or None."""
    if version < PYTHON_MIN:
        return "%s is Python %d.%d, but 3.11 or newer is needed; name one: make PYTHON=python3.12 ..." % (
            (executable,) + tuple(version)
        )
    try:
        import ensurepip
        import venv

        del ensurepip, venv
    except ImportError:
        return (
            "%s cannot make virtual environments; install the package python%d.%d-venv (or python3-venv) and try again"
            % ((executable,) + tuple(version))
        )
    return None


def lock_exclusively(file):
    try:
        import fcntl
    except ImportError:  # Windows runs the lake verbs, not this Makefile.
        return
    fcntl.flock(file, fcntl.LOCK_EX)


def set_up():
    wanted_lock, wanted_project = digest(LOCK), digest("pyproject.toml") + " " + PROJECT
    found = read_stamp()
    if found == [wanted_lock, wanted_project] and works(VENV_PYTHON, "import msgspec, typer"):
        return 0
    if not works(VENV_PYTHON, "import pip"):
        say("making .venv with Python %d.%d" % sys.version_info[:2])
        run([sys.executable, "-m", "venv", "--clear", VENV])
        found = []
    remove(STAMP)
    if found[:1] != [wanted_lock]:
        say("installing the packages of requirements.lock (about a minute)")
        # The lock is complete, so nothing is resolved; byte code is written when first imported.
        pip("--require-hashes", "--no-deps", "--no-compile", "--only-binary=:all:", "-r", LOCK)
    write_stamp([wanted_lock])
    # setuptools comes from the lock, so nothing is fetched to build the link to this tree.
    pip("--no-deps", "--no-build-isolation", "--editable", PROJECT)
    write_stamp([wanted_lock, wanted_project])
    return 0


def read_stamp():
    try:
        with open(STAMP) as stamp:
            return stamp.read().splitlines()
    except OSError:
        return []


def write_stamp(lines):
    with open(STAMP, "w") as stamp:
        stamp.write("\n".join(lines) + "\n")


def digest(name):
    with open(os.path.join(PROJECT, name), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def works(python, code):
    try:
        return subprocess.call([python, "-I", "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0
    except OSError:
        return False


def remove(path):
    try:
        os.unlink(path)
    except OSError:
        pass


def pip(*arguments):
    run([VENV_PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"] + list(arguments))


def run(command):
    environment = {name: value for name, value in os.environ.items() if name not in PIP_ENV_FOREIGN}
    environment["PIP_ROOT_USER_ACTION"] = "ignore"
    environment["PIP_USER"] = "0"
    code = subprocess.call(command, env=environment, stdin=subprocess.DEVNULL)
    if code != 0:
        sys.stderr.write(
            "trajlake set-up: failed (exit %d): %s; its message stands above\n" % (code, " ".join(command))
        )
        sys.exit(3)


def say(text):
    sys.stderr.write("trajlake set-up: %s\n" % text)


if __name__ == "__main__":
    sys.exit(main())
