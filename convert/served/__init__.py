"""What people serve a converted model with: ONNX, CTranslate2, a Gradio Space."""
