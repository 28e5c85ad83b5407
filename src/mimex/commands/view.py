"""`mimex view`: show an environment in the browser while a policy acts in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, get_args

import torch
import tyro
from gymnasium.vector import VectorEnv

from mimex.agents.factory import make_bonus, make_view
from mimex.agents.ppo import PPO
from mimex.bonus.base import EpisodicReward
from mimex.commands.build import Which, load_agent, make_env
from mimex.commands.play import DEFAULT_FPS, Kind, Untrained, expanded, require_expert
from mimex.commands.pretrained import load_pretrained
from mimex.config import TrainConfig, family_of, preset
from mimex.contracts import Policy, final_successes
from mimex.data.tracker import WindowTracker
from mimex.envs.arrays import to_numpy
from mimex.envs.catalog import NAMES
from mimex.nn.parallel import use_workers
from mimex.policies import names
from mimex.train.checkpoint import Checkpoints
from mimex.train.folder import RunFolder
from mimex.view.panel import Panel
from mimex.view.server import close_server, open_server, require_viser

Poses = Callable[[], tuple[Any, Any]]
"""Returns MuJoCo's current ``xpos`` ``(bodies, 3)`` and ``xquat`` ``(bodies, 4)``."""

RELOAD = "Reload checkpoint"
AGENTS = get_args(Kind)
FRAME_SECONDS = 1 / 90
"""Minimum time between two poses sent to the browser."""
PLOT_SECONDS = 0.1
"""Time between two updates of the plots."""
MAX_LAG_SECONDS = 0.25
"""Maximum lag behind real time that a slow simulation catches up."""
IDLE_SECONDS = 0.05
"""Time between two checks of the controls while the simulation is paused."""


@dataclass(frozen=True)
class ViewConfig:
    """Show a task or a run in the browser, with live plots of reward and bonus."""

    what: tyro.conf.Positional[str]
    """Run folder; with --agent or --pretrained a task, such as FrankaPick."""
    agent: Kind | None = None
    """Policy without training: zero actions, random actions, or the scripted expert (only
    PixMC-Sparse). --expert is short for --agent expert, and so on."""
    pretrained: bool = False
    """Use the pretrained policy of a task, or a .safetensors file of `mimex export`."""
    checkpoint: Which = "latest"
    """Checkpoint of the run."""
    seed: int = 0
    """Random seed of the first episode and of random actions."""
    host: str = "127.0.0.1"
    """Address to listen on. The default accepts only this machine; 0.0.0.0 opens the viewer, which
    has no password, to the network."""
    port: int = 8080
    """Port to listen on; if it is in use, the next free one."""
    trust_modules: tuple[str, ...] = ()
    """Modules that the run's task (gym/MODULE:ID) may import; their code is executed."""


def run(arguments: Sequence[str]) -> int:
    """Runs the command until Ctrl-C."""
    config = tyro.cli(ViewConfig, args=expanded(arguments), prog="mimex view")
    require_viser()
    use_workers(1)
    source = _source(config)
    session = source.open(source.initial)  # may fail, so before the server starts
    server = open_server(config.host, config.port)
    try:
        viewer = Viewer(server, source, session)
        host = "localhost" if config.host in ("127.0.0.1", "0.0.0.0") else config.host
        address = f"http://{f'[{host}]' if ':' in host else host}:{server.get_port()}"
        print(f"{session.title}: {address} (Ctrl-C ends)", flush=True)
        viewer.loop()
    except KeyboardInterrupt:
        return 0
    finally:
        close_server(server)


class Source(NamedTuple):
    """The sessions that a viewer can show."""

    choices: Mapping[str, Sequence[str]]  # options of each menu by its label
    initial: Mapping[str, str]  # initial option of each menu
    buttons: Sequence[str]  # additional buttons, which reopen the session
    open: Callable[[Mapping[str, str]], Session]  # opens the session of the selected options


def _source(config: ViewConfig) -> Source:
    if config.pretrained:
        if config.agent is not None:
            raise ValueError("--agent and --pretrained both select a policy: leave one out")
        return _pretrained(config)
    return _checkpoints(config) if config.agent is None else _tasks(config)


def _pretrained(config: ViewConfig) -> Source:
    """The shipped policies, or a policy file."""
    policies = names() if config.what in names() else (config.what,)

    def open_policy(chosen: Mapping[str, str]) -> Session:
        trained, policy, step = load_pretrained(chosen["Policy"])
        title = f"{chosen['Policy']}, pretrained for {step:,} steps"
        return Session(title, make_env(trained, 1), Actor(policy), config.seed)

    return Source({"Policy": policies}, {"Policy": config.what}, (), open_policy)


def _tasks(config: ViewConfig) -> Source:
    """Tasks of one family, with untrained policies."""
    preset("cpu", task=config.what).checked()
    require_expert(config.agent, config.what)
    family = family_of(config.what)
    # Not all environments of gym/ have a MuJoCo scene.
    tasks = (config.what,) if family.prefix == "gym/" else family.tasks()
    agents = AGENTS if config.what in NAMES else AGENTS[:-1]

    def open_task(chosen: Mapping[str, str]) -> Session:
        task, agent = chosen["Task"], chosen["Agent"]
        env = make_env(preset("cpu", task=task).checked(), 1)
        policy = Untrained(agent, task, env, config.seed)
        return Session(f"{task}, {agent}", env, Actor(policy), config.seed)

    initial = {"Task": config.what, "Agent": str(config.agent)}
    return Source({"Task": tasks, "Agent": agents}, initial, (), open_task)


def _checkpoints(config: ViewConfig) -> Source:
    """Checkpoints of a run."""
    folder = Path(config.what)
    if not folder.is_dir():
        raise ValueError(
            f"{config.what} is not a run folder: use one, or a task with --agent zero, random or "
            "expert, or with --pretrained"
        )

    def open_checkpoint(chosen: Mapping[str, str]) -> Session:
        which: Any = chosen["Checkpoint"]
        trained, agent, step = load_agent(folder, which, config.trust_modules)
        env = make_env(trained, 1)
        actor = Actor(agent)
        if hasattr(trained, trained.bonus):  # bonuses without settings have no networks
            actor = ScoringActor(trained, env, agent, folder, which)
        return Session(f"{trained.title}, step {step:,}", env, actor, config.seed)

    initial = {"Checkpoint": config.checkpoint}
    return Source({"Checkpoint": get_args(Which)}, initial, (RELOAD,), open_checkpoint)


class Actor:
    """Acts deterministically."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def act(self, observation: Any, *, starts: bool) -> tuple[Any, float | None]:
        """Returns the actions for an observation, and its bonus if there is one."""
        return self._policy.policy(observation), None


class ScoringActor(Actor):
    """The policy of a run, which also computes the run's bonus without training it."""

    def __init__(
        self,
        config: TrainConfig,
        env: VectorEnv[Any, Any, Any],
        algorithm: Any,
        folder: Path,
        which: Which,
    ) -> None:
        super().__init__(algorithm)
        self._algorithm, on_policy = algorithm, isinstance(algorithm, PPO)
        reader = algorithm.encoder.reader if on_policy else algorithm.reader
        settings = config.loop if on_policy else config.off_policy
        if on_policy:
            discrete_obs = reader.discrete
            discrete = algorithm.actions.discrete and settings.stride == 1
        else:
            discrete_obs, discrete = reader.discrete and config.drqv2.features != "trunk", False
        self._view = make_view(config, env, reader, algorithm.feature_dim)
        width = algorithm.feature_dim if self._view is None else len(self._view)
        self._bonus = make_bonus(
            config, width, algorithm.action_dim, discrete_obs=discrete_obs, discrete=discrete
        )
        checkpoints = Checkpoints(RunFolder(folder).checkpoints)
        saved = checkpoints.latest() if which == "latest" else checkpoints.best()
        assert saved is not None  # the algorithm was loaded from it
        with checkpoints.loading():
            self._bonus.load_state_dict(saved[1]["agent"]["bonus"])
        self._tracker = WindowTracker(
            1,
            self._bonus.length,
            width,
            algorithm.action_dim,
            device=algorithm.device,
            stride=settings.stride,
        )
        self._prev_action = torch.zeros(1, algorithm.action_dim, device=algorithm.device)

    @torch.no_grad()
    def act(self, observation: Any, *, starts: bool) -> tuple[Any, float | None]:
        algorithm, first = self._algorithm, torch.tensor([starts], device=self._algorithm.device)
        if isinstance(algorithm, PPO):
            stored = algorithm.encoder.read(observation)
            actions, _, features = algorithm.act(stored, deterministic=True)
        else:
            packed = algorithm.read(observation)
            actions, features = (
                algorithm.act(packed, 0, deterministic=True),
                algorithm.features(packed),
            )
        seen = features if self._view is None else features[..., self._view]
        window = self._tracker.push(seen, first, self._prev_action)
        self._prev_action = algorithm.actions.clipped(actions)
        if isinstance(self._bonus, EpisodicReward):
            bonus = self._bonus.follow(window, first)
        else:
            bonus = self._bonus.reward(window)
        return algorithm.actions(actions), float(bonus[0])


def simulation(env: VectorEnv[Any, Any, Any]) -> tuple[Any, Poses]:
    """Returns the MuJoCo model of one environment, and a function for its poses."""
    base: Any = env.unwrapped
    if hasattr(base, "engine"):  # PixMC-Sparse
        fields = [base.engine.field(name) for name in ("xpos", "xquat")]
        return base.model, lambda: (to_numpy(fields[0])[0], to_numpy(fields[1])[0])
    if hasattr(base, "copies"):  # the control suite
        physics = base.copies[0].environment.physics
        model, data = physics.model.ptr, physics.data.ptr
    elif hasattr(base, "envs"):  # Gymnasium
        one = base.envs[0].unwrapped
        model, data = getattr(one, "model", None), getattr(one, "data", None)
    else:
        model = data = None
    if not hasattr(model, "ngeom") or not hasattr(data, "xpos"):
        raise ValueError(
            "this task has no MuJoCo scene to view: use `mimex play --video FILE`, which records "
            "any task that can be rendered"
        )
    return model, lambda: (data.xpos, data.xquat)


class Session:
    """One environment and its policy.

    Attributes:
        title: Title of the session.
        model: The compiled MuJoCo model.
        poses: Returns current positions ``(bodies, 3)`` and quaternions ``(bodies, 4)``.
        dt: Simulated time per step (s).
        steps: Steps of the running episode.
        returned: Return of the running episode so far.
        last: Description of the last episode's outcome.
    """

    def __init__(self, title: str, env: VectorEnv[Any, Any, Any], actor: Actor, seed: int) -> None:
        self.title, self._env, self._actor = title, env, actor
        self.model, self.poses = simulation(env)
        self.dt = 1 / float(env.metadata.get("render_fps", DEFAULT_FPS))
        self._weights: Mapping[str, float] = getattr(env.unwrapped, "weights", {})
        self._observation, _ = env.reset(seed=seed)
        self.steps, self.returned, self.last = 0, 0.0, ""

    def restart(self) -> None:
        """Begins a new episode."""
        self._observation, _ = self._env.reset()
        self.steps, self.returned = 0, 0.0

    def step(self) -> dict[str, dict[str, float]]:
        """Steps the environment; returns values by plot and line."""
        actions, bonus = self._actor.act(self._observation, starts=self.steps == 0)
        self._observation, rewards, terminated, truncated, info = self._env.step(actions)
        ended, reward = bool(terminated[0] | truncated[0]), float(rewards[0])
        final = info["final_info"] if ended and "final_info" in info else info
        terms = {
            name.removeprefix("reward/"): float(value[0])
            for name, value in final.items()
            if name.startswith("reward/")
        }
        values = {"Reward": self._weighted(terms) | {"reward": reward}}
        if bonus is not None:
            values["Bonus (raw)"] = {"bonus": bonus}
        self.steps, self.returned = self.steps + 1, self.returned + reward
        if ended:
            found = final_successes(info)
            success = "" if found is None else ", success" if found[0] else ", no success"
            self.last = f"return {self.returned:.2f} in {self.steps} steps{success}"
            self.steps, self.returned = 0, 0.0
        return values

    def _weighted(self, terms: Mapping[str, float]) -> dict[str, float]:
        """Weighted reward terms, without those of weight 0."""
        weights = {name: self._weights.get(name, 1.0) for name in terms}
        return {name: weights[name] * value for name, value in terms.items() if weights[name]}

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()


class Viewer:
    """Steps a session in real time and shows it."""

    def __init__(self, server: Any, source: Source, session: Session) -> None:
        from mimex.view.scene import Scene, set_camera, set_surroundings  # loads MuJoCo

        self._make_scene, self._set_camera = Scene, set_camera
        self._server, self._source, self._session = server, source, session
        set_surroundings(server)
        self._scene = Scene(server, session.model)
        set_camera(server, session.model)
        self._panel = Panel(server, source.choices, source.initial, source.buttons)
        self._shown, self._problem = dict(source.initial), ""
        self._time = 0.0  # simulated time on the plots
        self._show_session()

    def loop(self) -> NoReturn:
        """Runs until Ctrl-C; pauses while no browser is connected."""
        due = frame = plot = time.monotonic()
        while True:
            changed = self._handle_controls()
            now = time.monotonic()
            if self._panel.paused or not self._server.get_clients():
                if changed:
                    self._draw()
                    self._report()
                time.sleep(IDLE_SECONDS)
                due = now
                continue
            values = self._session.step()
            self._time += self._session.dt
            self._panel.record(self._time, values)
            if self._session.steps == 0:
                self._scene.place_geoms()
            if now - frame >= FRAME_SECONDS:
                self._draw()
                frame = now
            if now - plot >= PLOT_SECONDS:
                self._panel.draw()
                self._report()
                plot = now
            due = max(due + self._session.dt / self._panel.speed, now - MAX_LAG_SECONDS)
            time.sleep(max(0.0, due - time.monotonic()))

    def _handle_controls(self) -> bool:
        """Handles menus and buttons; returns whether the scene changed."""
        panel, wanted = self._panel, {name: self._panel.chosen(name) for name in self._shown}
        if wanted != self._shown or any(map(panel.pressed, self._source.buttons)):
            self._open(wanted)
            return True
        if panel.pressed("Restart"):
            self._session.restart()
            self._scene.place_geoms()
            return True
        return False

    def _open(self, wanted: dict[str, str]) -> None:
        """Opens another session; if that fails, shows the error and keeps the current one."""
        try:
            session = self._source.open(wanted)
        except (ValueError, OSError, ImportError, RuntimeError) as error:
            self._problem = str(error)
            for label, option in self._shown.items():
                self._panel.choose(label, option)
            self._report()
            return
        self._session.close()
        self._session, self._shown, self._problem = session, wanted, ""
        self._scene.remove()
        self._scene = self._make_scene(self._server, session.model)
        self._set_camera(self._server, session.model)
        self._panel.clear()
        self._show_session()

    def _show_session(self) -> None:
        self._time = 0.0
        self._server.gui.set_panel_label(f"mimex: {self._session.title}")
        self._draw()
        self._report()

    def _draw(self) -> None:
        self._scene.update(*self._session.poses())

    def _report(self) -> None:
        session = self._session
        lines = [f"step {session.steps}, return {session.returned:.2f}"]
        if session.last:
            lines.append(f"last episode: {session.last}")
        if self._problem:
            lines.append(self._problem)
        self._panel.set_text(*lines)
