from ngrpo.data.countdown.levels import CountdownLevel
from ngrpo.demo_model.lessons import CountdownLessons
from ngrpo.demo_model.recipe import COUNTDOWN


def test_countdown_lessons_are_right_and_those_of_the_recipe_do_not_change_at_the_end() -> None:
    lessons = CountdownLessons(CountdownLevel(3, 5))
    for key in range(50):
        lesson, problem = lessons.lesson(key, settled=False), lessons.problem(key, "train")
        assert lesson.question == problem.question
        assert lessons.is_right(lesson.response, problem)
        assert not lessons.is_right(lesson.response.replace("</think>", ""), problem)
        assert lesson == COUNTDOWN.lessons.lesson(key, settled=True)


def test_countdown_texts_are_questions_and_responses() -> None:
    question, response = COUNTDOWN.lessons.texts(1)
    assert question.startswith("Reach ")
    assert "\\boxed{" in response
