"""One module for each way in which gtm's two promises were once broken; `tests.drills.attack` runs them all."""
