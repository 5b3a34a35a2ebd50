"""Mixtures of experts: who sends which tokens where, and what that takes."""
