"""A Hugging Face dataset, or a table like it, as a map-style dataset of (image, label)."""

from typing import Any

from isosphere.errors import BadArgument

NEEDED, MORE = ("image", "label"), ("group", "role")


def is_table(dataset: Any) -> bool:
    """Whether a dataset has columns, each of which can be read alone."""
    return hasattr(dataset, "column_names") and hasattr(dataset, "select_columns") and hasattr(dataset, "features")


class Rows:
    """Rows with the columns image and label, and perhaps group and role, as `DatasetImages` takes a dataset.

    Labels are read as one column, so no image is decoded for them. A ClassLabel gives the classes their names.
    """

    def __init__(self, table: Any) -> None:
        names = table.column_names
        if not set(NEEDED) <= set(names):
            expected = "a dataset with the columns image and label; data.rename_column(old, new) renames one"
            raise BadArgument("data", list(names), expected)
        held = table.select_columns([name for name in (*NEEDED[1:], *MORE) if name in names]).with_format(None)[:]
        self.table, self.targets = table, list(held["label"])
        self.classes = getattr(table.features["label"], "names", None)
        if any(label is None or (self.classes is not None and label == -1) for label in self.targets):
            raise BadArgument("data", "rows without a label", "a dataset in which each image has one")
        if "group" in held:
            # A row without a group shares it with none.
            number = {group: place for place, group in enumerate(dict.fromkeys(held["group"])) if group is not None}
            self.groups = [number.get(group, -1 - row) for row, group in enumerate(held["group"])]
        if "role" in held:
            if odd := set(held["role"]) - {"query", "gallery"}:
                raise BadArgument("data", f"the role {min(map(str, odd))}", "roles query and gallery")
            self.is_query = [role == "query" for role in held["role"]]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> tuple[Any, Any]:
        found = self.table[row]
        return found["image"], found["label"]
