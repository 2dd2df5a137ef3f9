"""What the fields of a recipe must satisfy, with errors that name the field."""


def at_least(options: object, least: float, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and not value >= least:
            raise ValueError(f"{name} must be at least {least}, not {value}")


def positive(options: object, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be above 0, not {value}")


def within(options: object, least: float, most: float, name: str, unit: str) -> None:
    value = getattr(options, name)
    if not least <= value <= most:
        raise ValueError(f"{name} must be {unit} from {least:.5g} to {most:.5g}, not {value}")


def shares(scale: tuple[float, float]) -> None:
    if not 0 < scale[0] <= scale[1] <= 1:
        raise ValueError(f"scale must be two shares of the area in order, not {scale}")


def inside(options: object) -> None:
    size, shorter = options.size, options.shorter
    if size > shorter:
        raise ValueError(f"size {size} needs shorter of at least {size}, say {-(-size * 9 // 8)}")
