"""Prints what the stock is worth."""

from stock import load, running_low


def total(items):
    return sum(item.count * item.price for item in items)


if __name__ == "__main__":
    items = load("data/items.csv")
    print(f"{len(items)} items worth {total(items):.2f}")
    for item in running_low(items):
        print(f"low: {item.code} {item.name} ({item.count} left)")
