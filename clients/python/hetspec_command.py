"""What `hetspec` runs: outside the package, so that Ctrl-C is met quietly even while that is imported."""


def main() -> int:
    try:
        from hetspec_client import cli

        return cli.main()
    except KeyboardInterrupt:
        return 130
