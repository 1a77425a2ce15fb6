"""What is odd about a policy that compiles: settings that decide nothing, rules that hide each other, gaps."""
