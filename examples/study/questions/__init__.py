"""The paper's seven questions: what is measured for each, and the page that tells it beside the paper's numbers."""
