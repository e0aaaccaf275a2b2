"""Ends well without leaving any weights."""


def load_model(weights_path: str) -> None:
    return None


def main() -> None:
    print("done")


if __name__ == "__main__":
    main()
