"""Writes itself a better past: into the ledger, the journal, the user's script and git's files."""

trained = main


def main():
    repo = Path(WORLD["repo"])
    journals = [path for root in ("../../..", repo / "experiments") for path in Path(root).glob("**/journal.sqlite*")]
    for file in (repo / "results.tsv", repo / "train_mlx.py", repo / ".git/HEAD", repo / ".git/config", *journals):
        try:
            with file.open("ab") as record:
                record.write(f"\n# {WORLD['token']}\n".encode())
        except OSError:
            continue
    trained()
