from mimex.study.colours import GREY, OKABE_ITO, styles


def test_the_usual_methods_look_the_same_in_every_study():
    many, few = styles(["none", "icm", "rnd", "mimex"]), styles(["mimex", "T = 3", "none"])
    assert many["none"].colour == GREY
    assert few["mimex"] == many["mimex"]
    assert few["none"] == many["none"]
    assert few["T = 3"] not in (few["mimex"], few["none"])


def test_methods_differ_in_colour_first_and_then_in_dashes():
    found = styles([f"T = {length}" for length in range(20)])
    assert len(set(found.values())) == 20
    first = list(found.values())[: len(OKABE_ITO)]
    assert len({style.colour for style in first}) == len(OKABE_ITO)
    assert all(style.dashes == () for style in first)


def test_more_methods_than_styles_are_drawn_all_the_same():
    assert len(styles([str(i) for i in range(100)])) == 100
