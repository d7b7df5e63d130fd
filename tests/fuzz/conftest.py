from tests.contract.conftest import connect

__all__ = ["connect"]
