"""Results with much data and a short display: a line where Python prints them, a small table in a notebook."""

from abc import ABC, abstractmethod
from html import escape


class Brief(ABC):
    """A result that is shown by its main figures. A dataclass of it takes `repr=False`."""

    @abstractmethod
    def facts(self) -> dict[str, str]:
        """Return the main figures with their units, by their names."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(f'{name} {fact}' for name, fact in self.facts().items())}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(fact)}</td></tr>" for name, fact in self.facts().items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"
