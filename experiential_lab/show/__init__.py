"""What is shown: frames in, figures and small pieces of HTML out. Hues say where a value comes from."""
