"""Reads the stock and says what is running low."""

import csv
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    code: str
    name: str
    count: int
    price: float


def load(path):
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        return [Item(row["code"], row["name"], int(row["count"]), float(row["price"])) for row in rows]


def running_low(items, threshold=50):
    return [item for item in items if item.count < threshold]
