"""The viewer: what it refuses, its shapes, and the page in a real browser."""

import re
import shutil
import socket
import sys
import time
from contextlib import contextmanager, nullcontext
from signal import SIGINT

import numpy as np
import pytest
import viser
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from mimex.cli import main
from mimex.view.panel import Panel
from mimex.view.server import close_server, free_port, open_server

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
FLAGS = [
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 180_000  # ms, for WebGL in software on a machine that has more to do


@contextmanager
def taken_port():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_without_viser_the_extra_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "viser", None)
    assert main(["view", "FrankaReach", "--agent", "zero"]) == 1
    assert "pip install 'mimex[view]'" in capsys.readouterr().err


def test_a_port_that_is_taken_gives_way_to_the_next_free_one():
    with taken_port() as port:
        assert port < free_port("127.0.0.1", port) <= port + 100


def test_an_address_of_another_machine_is_refused_with_the_remedy():
    with pytest.raises(ValueError, match=r"--host is '192\.0\.2\.1', .* use 127\.0\.0\.1"):
        free_port("192.0.2.1", 8080)  # reserved for documentation: nobody has it
    with pytest.raises(ValueError, match="--port is 0"):
        free_port("127.0.0.1", 0)


@pytest.fixture
def server():
    with taken_port() as port:
        opened = open_server("127.0.0.1", port)
    yield opened
    close_server(opened)


@pytest.mark.parametrize(
    ("origin", "accepted"),
    [
        ("http://localhost:{port}", True),
        ("http://127.0.0.1:9000", True),  # through a tunnel
        (None, True),  # not a browser
        ("http://evil.example", False),
        ("http://localhost.evil.example:{port}", False),
        ("null", False),
    ],
)
def test_pages_of_other_sites_cannot_connect(origin, accepted, server):
    port, protocol = server.get_port(), f"viser-v{viser.__version__}"
    origin = origin and origin.format(port=port)
    refused = pytest.raises(InvalidStatus, match="403")
    with (
        nullcontext() if accepted else refused,
        connect(f"ws://127.0.0.1:{port}", origin=origin, subprotocols=[protocol]) as page,
    ):
        assert page.recv(timeout=10)


def test_a_page_cannot_choose_what_the_menu_does_not_have(server):
    panel = Panel(server, {"Task": ("FrankaPick", "FrankaReach")}, {"Task": "FrankaPick"})
    menu = panel._menus["Task"].handle
    menu._impl.value = "gym/module:Env-v0"  # as by viser's handler of messages
    assert panel.chosen("Task") == "FrankaPick"
    menu._impl.value = "FrankaReach"
    assert panel.chosen("Task") == "FrankaReach"
    panel._speed.handle._impl.value = "fast"
    assert panel.speed == 1.0


def test_a_capsule_has_the_shape_that_mujoco_gives_it():
    from mimex.view.scene import capsule

    vertices, faces = capsule(0.1, 0.5)
    axis = np.clip(vertices[:, 2], -0.5, 0.5)[:, None] * [0, 0, 1]
    np.testing.assert_allclose(np.linalg.norm(vertices - axis, axis=1), 0.1)
    assert vertices[:, 2].max() == pytest.approx(0.6)
    corners = vertices[faces]  # (F, 3, 3)
    areas = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]) / 2
    outward = corners.mean(1) - axis[faces].mean(1)
    assert ((areas * outward).sum(1) > -1e-12).all()
    sphere, cylinder = 4 * np.pi * 0.1**2, 2 * np.pi * 0.1 * 1.0
    assert np.linalg.norm(areas, axis=1).sum() == pytest.approx(sphere + cylinder, rel=0.02)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gym/CartPole-v1", "--agent", "random"], "no MuJoCo scene to view: use `mimex play"),
        (["dmc/cartpole_swingup", "--agent", "expert"], "dmc/cartpole_swingup has none"),
        (["FrankaPick"], "or a task with --agent zero, random or expert, or with --pretrained"),
        (["FrankaReach", "--pretrained", "--random"], "leave one out"),
        (["Nothing", "--pretrained"], "there is no pretrained policy 'Nothing'"),
        (
            ["FrankaReach", "--agent", "zero", "--host", "192.0.2.1"],
            "not an address of this machine",
        ),
    ],
)
def test_what_cannot_be_viewed_is_refused_with_the_remedy(arguments, words, capsys):
    assert main(["view", *arguments]) == 1
    assert words in capsys.readouterr().err


@pytest.fixture(scope="module")
def chromium():
    if CHROMIUM is None:
        pytest.skip("no Chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def serving(*arguments):
    """The command in a process of its own, and its address; Ctrl-C ends it without an error."""
    from tests.processes import start_new

    with taken_port() as port:  # so that it has to look for another one
        process = start_new(["view", *arguments, "--port", str(port)])
        said = process.stdout.readline()
        try:
            assert " (Ctrl-C ends)" in said, said + process.stdout.read()
            address = said.split(": ", 1)[1].split(" ")[0]
            assert int(address.rsplit(":", 1)[1]) > port
            yield address
        finally:
            process.send_signal(SIGINT)
            rest, _ = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "")


@contextmanager
def page_at(browser, address):
    """The page, which must report no errors."""
    problems = []
    page = browser.new_page(viewport={"width": 1100, "height": 400})
    page.set_default_timeout(PATIENCE)
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(address)
    page.wait_for_selector("canvas")
    page.get_by_role("button", name="Restart").wait_for()
    yield page
    page.close()
    assert not problems


def picture(page):
    """The middle of the page, where the robot is and neither the panel nor a notification."""
    time.sleep(2.0)  # the browser draws what was sent
    return page.screenshot(clip={"x": 330, "y": 0, "width": 420, "height": 400})


def wait_for_text(page, pattern):
    page.get_by_text(pattern).first.wait_for()


@pytest.mark.slow
def test_the_robot_moves_in_the_browser(chromium):
    with serving("FrankaPick", "--expert") as address, page_at(chromium, address) as page:
        port = int(address.rsplit(":", 1)[1])
        own = socket.gethostbyname(socket.gethostname())
        if not own.startswith("127."):
            with pytest.raises(OSError, match="refused"):
                socket.create_connection((own, port), timeout=5)
        wait_for_text(page, "mimex: FrankaPick, expert")
        wait_for_text(page, re.compile(r"step [1-9]\d*, return"))
        page.get_by_role("button", name="Pause").click()
        first = picture(page)
        assert picture(page) == first  # so that a difference means motion
        page.get_by_role("button", name="Play").click()
        time.sleep(2.0)
        page.get_by_role("button", name="Pause").click()
        assert picture(page) != first
        wait_for_text(page, "action_penalty")  # in the legend of the plot
        page.get_by_role("combobox", name="Task").click()
        page.get_by_role("option", name="KukaReach", exact=True).click()
        wait_for_text(page, "mimex: KukaReach, expert")
        assert picture(page) != first


@pytest.mark.slow
def test_a_pretrained_policy_is_shown_and_others_can_be_selected(chromium):
    with (
        serving("KukaReach", "--pretrained") as address,
        page_at(chromium, address) as page,
    ):
        wait_for_text(page, "mimex: KukaReach, pretrained for 753,664 steps")
        page.get_by_role("combobox", name="Policy").click()
        page.get_by_role("option", name="FrankaReach", exact=True).click()
        wait_for_text(page, "mimex: FrankaReach, pretrained for 507,904 steps")
        page.get_by_role("combobox", name="Speed").click()
        page.get_by_role("option", name="4x", exact=True).click()
        wait_for_text(page, re.compile("last episode: return .*, success"))


@pytest.mark.slow
def test_a_run_shows_its_bonus(chromium, tmp_path):
    run = tmp_path / "run"
    sizes = ["--envs", "8", "--loop.rollout-steps", "16", "--steps", "512"]
    trained = ["train", "FrankaReach", "--bonus", "mimex", *sizes, "--eval.episodes", "2"]
    assert main([*trained, "--out", str(run)]) == 0
    with serving(str(run)) as address, page_at(chromium, address) as page:
        wait_for_text(page, "step 512")
        wait_for_text(page, "Bonus (raw)")
        assert main([*trained, "--steps", "1024", "--out", str(run)]) == 0
        page.get_by_role("button", name="Reload checkpoint").click()
        wait_for_text(page, "step 1,024")
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("button", name="Restart").click()
        wait_for_text(page, "step 0, return 0.00")


@pytest.mark.slow
def test_the_bonus_shown_is_that_of_the_checkpoint(tmp_path):
    """Window by window what the run's own bonus gives for the observations of an episode."""
    from mimex.commands.build import load_agent, make_env
    from mimex.commands.view import ScoringActor

    run = tmp_path / "run"
    sizes = ["--envs", "8", "--loop.rollout-steps", "16", "--steps", "512"]
    trained = ["train", "FrankaReach", "--bonus", "rnd", *sizes, "--eval.episodes", "2"]
    assert main([*trained, "--out", str(run)]) == 0
    config, agent, _ = load_agent(run, "latest")
    env = make_env(config, 1)
    actor, again = (ScoringActor(config, env, agent, run, "latest") for _ in range(2))
    observation, _ = env.reset(seed=0)
    scores = []
    for step in range(8):
        actions, bonus = actor.act(observation, starts=step == 0)
        np.testing.assert_array_equal(actions, agent.policy(observation))
        assert bonus == again.act(observation, starts=step == 0)[1]  # nothing is learned
        scores.append(bonus)
        observation, *_ = env.step(actions)
    env.close()
    assert np.isfinite(scores).all()
    assert len(set(scores)) == len(scores)
