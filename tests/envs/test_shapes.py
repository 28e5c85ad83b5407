import mujoco
import pytest

from mimex.envs.shapes import Layer, box, capsule, cylinder, sphere

RED = (1.0, 0.0, 0.0, 1.0)


def touching(first: Layer, second: Layer) -> bool:
    """Whether two overlapping boxes on separate bodies have a contact."""
    spec = mujoco.MjSpec()
    for layer in (first, second):
        body = spec.worldbody.add_body()
        body.add_freejoint()
        box(body, (0, 0, 0), (0.1, 0.1, 0.1), RED, layer)
        body.mass, body.inertia, body.explicitinertial = 1.0, (1.0, 1.0, 1.0), True
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return data.ncon > 0


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (Layer.ROBOT, Layer.ROBOT, False),
        (Layer.ROBOT, Layer.OBJECT, True),
        (Layer.ROBOT, Layer.FURNITURE, True),
        (Layer.OBJECT, Layer.OBJECT, True),
        (Layer.OBJECT, Layer.FURNITURE, True),
        (Layer.FURNITURE, Layer.FURNITURE, False),
        (Layer.VISUAL, Layer.ROBOT, False),
        (Layer.VISUAL, Layer.OBJECT, False),
        (Layer.VISUAL, Layer.FURNITURE, False),
    ],
)
def test_collision_layers_determine_contacts(first: Layer, second: Layer, expected: bool) -> None:
    assert touching(first, second) is expected
    assert touching(second, first) is expected


def test_volumes_are_those_of_the_named_shapes() -> None:
    spec = mujoco.MjSpec()
    solid = Layer.OBJECT
    adders = {
        "box": lambda b: box(b, (0, 0, 0), (0.1, 0.2, 0.3), RED, solid),
        "sphere": lambda b: sphere(b, (0, 0, 0), 0.1, RED, solid),
        "cylinder": lambda b: cylinder(b, (0, 0, 0), (0, 0, 0.5), 0.1, RED, solid),
        "capsule": lambda b: capsule(b, (0, 0, 0), (0, 0, 0.5), 0.1, RED, solid),
    }
    for name, add in adders.items():
        body = spec.worldbody.add_body(name=name)
        body.add_freejoint()
        add(body).density = 1.0
    model = spec.compile()
    volume = {name: model.body(name).mass[0] for name in adders}
    pi = 3.14159265
    assert volume["box"] == pytest.approx(0.2 * 0.4 * 0.6)
    assert volume["sphere"] == pytest.approx(4 / 3 * pi * 0.001)
    assert volume["cylinder"] == pytest.approx(pi * 0.01 * 0.5)
    assert volume["capsule"] == pytest.approx(pi * 0.01 * 0.5 + 4 / 3 * pi * 0.001)


def test_visual_geoms_have_no_mass() -> None:
    spec = mujoco.MjSpec()
    body = spec.worldbody.add_body(name="thing")
    body.add_freejoint()
    box(body, (0, 0, 0), (0.1, 0.1, 0.1), RED, Layer.OBJECT).density = 1000.0
    box(body, (1, 0, 0), (0.1, 0.1, 0.1), RED, Layer.VISUAL)
    assert spec.compile().body("thing").mass[0] == pytest.approx(8.0)
