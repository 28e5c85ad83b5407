"""The page in a real browser."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from playwright.sync_api import expect, sync_playwright

from mimex.study.report import write_report

NASTY = "<img src=x onerror=document.title='broken'>"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: apt-get install chromium"),
]

QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory, write_run_to, write_maps):
    """Two tasks, three methods with two or three seeds, maps and reconstructions."""
    film = {
        "kind": "first",
        "numbers": torch.arange(6),
        "features": torch.randn(2, 5, 6),
        "prediction": torch.randn(2, 5, 6),
        "hidden": torch.rand(2, 5) > 0.5,
        "reward": torch.tensor([0.25, 0.5]),
    }
    root = tmp_path_factory.mktemp("study")
    heights = {"none": 0.2, NASTY: 0.5, "mimex": 0.9}
    for task in ("FrankaReach", "KukaPick"):
        for bonus, height in heights.items():
            for seed in range(3 if bonus == "mimex" else 2):
                top = height + 0.01 * seed
                scaled = 0.0 if bonus == "none" else 0.1
                metrics = {
                    "eval/success": lambda x, top=top: top * min(1, 2 * x),
                    "train/reward": lambda x, top=top: top * x,
                    "bonus/reward": lambda x, scaled=scaled: scaled * (1 - x / 2),
                    "bonus/mean": lambda x, scaled=scaled: scaled * (1 - x / 2),
                    "bonus/share": lambda x, scaled=scaled: scaled,
                    "explore/coverage": lambda x: 0.1 * min(1, 2 * x),
                    "ppo/std": lambda x: 1 - x,
                }
                if bonus != "none":
                    metrics["explore/first_reward"] = lambda x, seed=seed: 200.0 + 50 * seed
                else:
                    metrics["ppo/explained_variance"] = lambda x: -0.1
                name = f"{task}-{bonus}-{seed}".replace("/", "")
                folder = write_run_to(
                    root / "runs" / name,
                    task=task,
                    bonus=bonus,
                    seed=seed,
                    metrics=metrics,
                    ppo={"lr": top},
                )
                records = [(500, (0.5, 0.0, 0.5), 1.0), (1000, (0.7, 0.2, 0.3), 2.0)]
                write_maps(folder, records, [film] if bonus == "mimex" else [])
    labels = [
        {"name": run.name, "labels": {"bonus": run.name.split("-", 1)[1].rsplit("-", 1)[0]}}
        for run in (root / "runs").iterdir()
    ]
    (root / "study.json").write_text(json.dumps({"runs": labels}))
    return write_report([root], root / "report.html", title=f"About {NASTY}").path


@pytest.fixture
def open_page(chromium, report):
    """Opens the report; console messages and requests are checked at the end."""
    messages, fetched, contexts = [], [], []

    def open_it(width=1280, scheme="light"):
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: fetched.append(request.url))
        page.goto(report.as_uri())
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert messages == []
    assert set(fetched) == {report.as_uri()}


def panel(page, section, place=0):
    return page.locator(f"#{section} figure.panel").nth(place)


def test_the_overview_has_every_method_with_its_interval(open_page):
    page = open_page()
    rows = page.locator("#overview-table tr:not(.narrow)")
    expect(rows).to_have_count(1 + 2 * 3)
    mimex = rows.filter(has_text="mimex").first
    assert "91.0 %" in mimex.inner_text()  # the mean of 0.90, 0.91 and 0.92
    assert (
        page.locator("#summary").inner_text().startswith("14 runs · 2 tasks · 3 methods · 2 to 3")
    )
    aggregate = page.locator("#aggregate tr").filter(has_text="mimex")
    assert "100.0 %" in aggregate.inner_text()  # surely better than none


def test_steps_to_the_first_reward_by_task_and_combined(open_page):
    page = open_page()
    rows = page.locator("#first-rewards tbody tr:not(.narrow)")
    expect(rows).to_have_count(3 * 3)  # two tasks, and both combined
    cells = [row.split("\t")[1:] for row in rows.all_inner_texts() if "onerror" not in row]
    shown = [[cell.strip() for cell in row] for row in cells]
    never = ["not reached", "\N{EN DASH}"]
    assert sorted(shown[:4]) == 2 * [["mimex", "3 of 3", "250", "0.2"]] + 2 * [
        ["none", "0 of 2", *never]
    ]
    assert sorted(shown[4:]) == [["mimex", "6 of 6", "250", "0.02"], ["none", "0 of 4", *never]]
    names = page.locator("#first-rewards td.name.wide").all_inner_texts()
    assert [name for name in names if name][-1] == "all tasks"


def test_a_warning_of_many_runs_is_shown_once(open_page):
    page = open_page()
    (row,) = page.locator("#health-table tbody tr").all()
    cells = row.locator("td").all_inner_texts()
    assert cells[0].startswith("FrankaReach-none-0: the critic explains nothing: -10%")
    assert cells[1:] == ["4", "1,000"]  # two tasks with two seeds each; raised after 20 of 20 rows
    assert "KukaPick-none-1" not in row.inner_text()
    row.locator("summary").click()
    assert "KukaPick-none-1 at step 1,000" in row.inner_text()


def test_names_are_text(open_page):
    page = open_page()
    assert page.title() == f"About {NASTY}"
    assert page.locator("h1").inner_text() == f"About {NASTY}"
    expect(page.locator("#legend button").filter(has_text="onerror")).to_have_count(1)
    assert page.locator("img").count() == 0


def hover(page, target, x, y):
    """Moves the mouse as a hand does, more than once: a page that is still being laid out may move
    away from under a single event."""
    for attempt in range(50):
        target.hover(position={"x": x, "y": y + attempt % 2})
        if page.locator("#tip").is_visible():
            return
        page.wait_for_timeout(100)


def test_hovering_shows_values_at_a_step(open_page):
    page = open_page()
    plot = panel(page, "curves").locator("svg")
    hover(page, plot, plot.bounding_box()["width"] - 9, 60)
    tip = page.locator("#tip")
    expect(tip).to_be_visible()
    lines = tip.inner_text().splitlines()
    assert lines[0] == "1k steps"
    assert "mimex" in lines[1]  # the highest first
    assert "91.0 %" in lines[1]
    page.mouse.move(5, 5)
    expect(tip).to_be_hidden()
    plot.focus()
    page.keyboard.press("ArrowLeft")
    expect(tip).to_be_visible()
    assert tip.inner_text().startswith("950 steps")


def test_a_hidden_method_is_shown_nowhere(open_page):
    page = open_page()
    lines = panel(page, "curves").locator("path.line")
    expect(lines).to_have_count(3)
    chip = page.locator("#legend button").filter(has_text="mimex")
    chip.click()
    assert chip.get_attribute("aria-pressed") == "false"
    expect(lines).to_have_count(2)
    expect(page.locator("#overview-table tr").filter(has_text="mimex")).to_have_count(0)
    expect(page.locator("#map-table tr").filter(has_text="mimex")).to_have_count(0)
    chip.click()
    expect(lines).to_have_count(3)


def test_another_metric_smoothing_and_single_runs(open_page):
    page = open_page()
    line = panel(page, "curves").locator("path.line").first
    before = line.get_attribute("d")
    page.select_option("select[aria-label=metric]", "ppo/std")
    assert panel(page, "curves").locator("path.line").first.get_attribute("d") != before
    assert "range over all runs" in page.locator("#curve-lead").inner_text()
    page.select_option("select[aria-label=metric]", "eval/success")
    assert panel(page, "curves").locator("path.line").first.get_attribute("d") == before
    page.locator("input[aria-label=smoothing]").fill("5")
    assert panel(page, "curves").locator("path.line").first.get_attribute("d") != before
    expect(panel(page, "curves").locator("path.band")).to_have_count(3)
    page.get_by_label("single runs").check()
    expect(panel(page, "curves").locator("path.run")).to_have_count(2 + 2 + 3)
    expect(panel(page, "curves").locator("path.band")).to_have_count(0)


def test_intrinsic_and_extrinsic_reward_share_a_panel(open_page):
    page = open_page()
    first = panel(page, "bonus").locator("path.line")
    expect(first).to_have_count(5)  # three rewards and two bonuses
    page.select_option("#bonus-controls select", "KukaPick")
    expect(first).to_have_count(5)


def test_maps_show_visits_and_bonus(open_page):
    page = open_page()
    maps = page.locator("#map-table canvas")
    expect(maps).to_have_count(3 * 2)
    first = page.locator("#map-table tr").filter(has_text="mimex").locator("canvas").first
    box = first.bounding_box()
    column, row = 10.5 / 24, 1 - 12.5 / 24  # the cell of x = 0.5, y = 0
    hover(page, first, column * box["width"], row * box["height"])
    expect(page.locator("#tip")).to_contain_text("3 visits")
    expect(page.locator("#tip")).to_contain_text("mean bonus 1")
    before = maps.last.evaluate("canvas => canvas.toDataURL()")
    page.get_by_role("button", name="from the side").click()
    assert maps.last.evaluate("canvas => canvas.toDataURL()") != before
    page.locator("#map-controls button", has_text="bonus").click()
    expect(page.locator("#map-scale")).to_contain_text("mean bonus")
    expect(page.locator("#map-table tr").filter(has_text="mimex")).to_contain_text("10.0 %")


def test_settings_reconstructions_and_versions_are_there(open_page):
    page = open_page()
    expect(page.locator("#settings-table")).to_contain_text("ppo.lr")
    expect(page.locator("#reconstruction-windows .strip")).to_have_count(2)
    expect(page.locator("#reconstruction-windows")).to_contain_text("bonus 0.25")
    expect(page.locator("#videos")).to_have_count(0)  # none were recorded
    expect(page.locator("#versions")).to_contain_text("python 3.11")


def brightness(page):
    color = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return np.mean([int(part) for part in re.findall(r"\d+", color)[:3]])


def test_light_and_dark_follow_the_system_and_the_button(open_page):
    page = open_page(scheme="dark")
    assert brightness(page) < 60
    page.locator("#theme").click()
    assert brightness(page) > 200
    assert brightness(open_page(scheme="light")) > 200


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(open_page, width):
    page = open_page(width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert panel(page, "curves").locator("svg").bounding_box()["width"] > 0.4 * min(width, 900)
