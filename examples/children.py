"""A task that starts others and waits for them; each goes on by itself after a crash.

Run it with `python examples/children.py`.
"""

from __future__ import annotations

import asyncio
import sys

import holdfast as hf

CITIES = {"Brest": 6.9, "Cuxhaven": 3.0, "Saint-Malo": 12.2}


async def measure(city: str) -> float:
    print(f"measuring in {city}", flush=True)
    return CITIES[city]


@hf.task
async def tide_in(run: hf.Run, city: str) -> float:
    return await run.step(measure, city)


@hf.task
async def survey(run: hf.Run, cities: list[str]) -> str:
    children = [await run.spawn(tide_in(city), id=city) for city in cities]  # once, whatever happens
    tides = [await child for child in children]
    highest = max(zip(tides, cities, strict=True))
    return f"the highest of {len(tides)} tides: {highest[0]} m in {highest[1]}"


async def main(url: str = "sqlite:///children.db") -> None:
    async with hf.open(url, tasks=[survey, tide_in]) as holdfast:
        handle = await holdfast.start(survey(sorted(CITIES)), key="survey")
        print(await handle.result())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
