"""The subjects, faults and measurements of the study: `python -m examples.study`, from the project's folder."""
