# SPDX-License-Identifier: Apache-2.0
"""What the checks share: the files of the repository, and how findings are reported."""
import os
import re
import subprocess
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def repository_files():
    """Paths below ROOT, committed or not, without what .gitignore names. Sorted."""
    run = subprocess.run(
        ("git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"),
        capture_output=True, text=True, check=False)
    if run.returncode == 0:
        found = [path for path in run.stdout.split("\0") if path]
    else:
        found = []
        for folder, folders, names in os.walk(ROOT):
            folders[:] = [name for name in folders if name not in ("build", ".git", "__pycache__")]
            found += [os.path.relpath(os.path.join(folder, name), ROOT) for name in names]
    return sorted(path for path in set(found) if os.path.isfile(os.path.join(ROOT, path)))


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def is_cpp(path):
    return path.endswith((".cc", ".h"))


def without_comments(text):
    """The same lines with comments and the contents of string literals blanked."""
    def blank(match):
        token = match.group(0)
        if token.startswith("/"):
            return re.sub(r"[^\n]", " ", token)
        return '""' if token.startswith('"') else "''"
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, blank, text, flags=re.S)


def finish(name, findings, remedy=""):
    """Prints the findings ("path:line: text") and leaves with 1 if there are any."""
    for finding in findings:
        print(finding)
    if findings:
        print(f"{name}: {len(findings)} finding(s). {remedy}".rstrip())
        sys.exit(1)
    print(f"{name}: ok")
